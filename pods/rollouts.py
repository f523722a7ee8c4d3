"""One step, the same on every rank: sample what the algorithm requests, score it, send it back."""

import itertools
import operator
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from pods import advantages
from pods.advantages import Advantage
from pods.batch import (
    MOST_ROUNDS,
    Algorithm,
    AlgorithmError,
    Batch,
    Prompt,
    Record,
    Rollout,
    Selection,
    Step,
    mean,
    read_only,
)
from pods.config.functions import FAILURES, location
from pods.rules import checked


@dataclass
class Driver:
    """Runs an algorithm for one step: samples and scores what it asks for, checks its result."""

    algorithm: Algorithm
    advantage: Advantage
    sample: Callable[[list[Prompt], list[int]], list[Rollout]]  # with the index of each rollout
    score: Callable[[list[Prompt], list[Rollout]], np.ndarray]  # -> (rollouts, functions)
    weights: dict[str, float]  # of every reward function, in the order of the scores
    correct: str | None  # the reward function whose values above 0 mean correct
    phase: Callable[[str], AbstractContextManager] = nullcontext  # around generate, score, select
    max_rounds: int = MOST_ROUNDS

    def __call__(self, step: Step) -> Record:
        """The paper's algorithm 1, or another one: generate and score what it asks for, until it
        selects what is trained on."""
        prompts: list[Prompt] = []  # (G,)
        prompt_numbers: list[int] = []  # (R,) the number of each rollout's prompt
        rollouts: list[Rollout] = []  # (R,)
        scores = np.zeros((0, len(self.weights)), dtype=np.float32)  # (R, functions)
        index: dict[Prompt, Iterator[int]] = defaultdict(itertools.count)  # next, by question
        batch: Batch | None = None  # nothing was sampled yet
        algorithm = self.algorithm(step)
        for rounds in itertools.count():
            with self.phase("select"), algorithm_errors("algorithm", self.algorithm, step):
                try:
                    request = algorithm.send(batch)
                except StopIteration as end:
                    selection = self.selection(end.value, batch, step)
                    return Record(step, prompts, rollouts, batch, selection, rounds)
                if rounds == self.max_rounds:
                    raise ValueError(f"asked for more than {self.max_rounds} rounds of generation")
                further = numbers_of(request, prompts)
            wanted = [prompts[number] for number in further]
            with self.phase("generate"):
                sampled = self.sample(wanted, [next(index[prompt]) for prompt in wanted])
            with self.phase("score"):
                scores = np.concatenate([scores, self.score(wanted, sampled)])
            prompt_numbers += further
            rollouts += sampled
            batch = self.batch(prompt_numbers, rollouts, scores)

    def batch(
        self, prompt_numbers: list[int], rollouts: list[Rollout], scores: np.ndarray
    ) -> Batch:
        """What the algorithm receives; rewards add up as in TRL, in float32, None counting as 0."""
        rewards = np.nansum(scores * np.float32([*self.weights.values()]), axis=1, dtype=np.float32)
        rewards[np.isnan(scores).all(axis=1)] = np.nan
        by_function = MappingProxyType(dict(zip(self.weights, read_only(scores).T, strict=True)))
        completions = [rollout.completion for rollout in rollouts]
        correct = logprobs = None
        if self.correct is not None:
            correct = by_function[self.correct] > 0
        if all(completion.logprobs is not None for completion in completions):
            logprobs = [mean(completion.logprobs) for completion in completions]
        elif getattr(self.algorithm, "reads_logprobs", False):
            name = getattr(self.algorithm, "__name__", self.algorithm)
            raise AlgorithmError(
                f"algorithm {name} reads log-probabilities, and the generation gives none; set "
                "use_vllm=True, or with train.py engine=transformers"
            )
        return Batch(
            prompt=prompt_numbers,
            rewards=rewards,
            correct=correct,
            by_function=by_function,
            lengths=[len(completion.token_ids) for completion in completions],
            clipped=[completion.clipped for completion in completions],
            logprobs=logprobs,
            weights=self.weights,
        )

    def selection(self, value: object, batch: Batch | None, step: Step) -> Selection:
        """The algorithm's selection, checked and in ascending order, with advantages. If TRL
        computes them (plain GRPO), in the order of the prompts and without."""
        if batch is None:
            raise ValueError("returned before it asked for rollouts; yield (prompts, count) first")
        choice = value if isinstance(value, Selection) else Selection(value)
        kept = read_only(checked(choice.kept, len(batch), None, "it"))
        if len(kept) > step.budget:
            raise ValueError(
                f"returned {len(kept)} rollouts, more than budget = P m = {step.budget}"
            )
        if choice.advantages is not None:
            values = advantages.checked(choice.advantages, len(kept))
            return Selection(kept, values[np.argsort(choice.kept, kind="stable")])
        by_prompt = np.argsort(batch.prompt, kind="stable")  # TRL takes each m rows for a group
        m_of_each = np.array_equal(batch.prompt[by_prompt], np.repeat(np.arange(step.P), step.m))
        if m_of_each and len(kept) == len(batch) and self.advantage is advantages.over_kept:
            return Selection(by_prompt)  # plain GRPO: TRL's own advantages, to the bit
        with algorithm_errors("advantage", self.advantage, step):
            values = self.advantage(batch, kept)
            return Selection(kept, advantages.checked(values, len(kept)))


def numbers_of(request: object, prompts: list[Prompt]) -> list[int]:
    """The number of the prompt of each rollout that is asked for; new prompts are added."""
    pairs = prompts_and_counts(request)
    # By identity: a question may be twice in a step, as two prompts.
    number_of = {id(prompt): number for number, prompt in enumerate(prompts)}
    numbers = []
    for prompt, count in pairs:
        if count == 0:
            continue
        number = number_of.setdefault(id(prompt), len(prompts))
        if number == len(prompts):
            prompts.append(prompt)
        numbers += [number] * count
    return numbers


def prompts_and_counts(request: object) -> list[tuple[Prompt, int]]:
    """(prompts, count) with a count for each prompt. ValueError if it is anything else."""
    try:
        wanted, count = request
        counts = [count] * len(wanted) if np.ndim(count) == 0 else count
        pairs = list(zip(wanted, map(operator.index, counts), strict=True))
        valid = all(isinstance(prompt, Prompt) and count >= 0 for prompt, count in pairs)
    except (TypeError, ValueError):
        valid = False
    if not valid or not any(count for _, count in pairs):
        raise ValueError(
            f"yielded {request!r}; (prompts, count) is required: prompts of step.prompts or "
            "step.fresh(k), and one count or one for each, not all 0"
        )
    return pairs


@contextmanager
def algorithm_errors(kind: str, function: Callable, step: Step) -> Iterator[None]:
    """Errors in this block become AlgorithmErrors that name the function and the step."""
    try:
        with contained():
            yield
    except AlgorithmError:
        raise
    except FAILURES as error:  # ours, a ValueError, says enough; others need their type
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        name = getattr(function, "__name__", function)
        raise AlgorithmError(
            f"{kind} {name} failed at step {step.number}{location(error)}: "
            f"{' '.join(reason.split())}"
        ) from error


@contextmanager
def contained() -> Iterator[None]:
    """Around a call of the user's code. A process that it forks ends with the block: it would train
    on in the same folder. Standard streams that it closes are opened anew, into nothing: the next
    file that is opened would become stdout."""
    process = os.getpid()
    status: object = 0
    try:
        yield
    except BaseException as error:
        status = error.code if isinstance(error, SystemExit) else 1
        raise
    finally:
        if os.getpid() != process:
            os._exit(status if isinstance(status, int) else status is not None)
        for number in range(3):
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
