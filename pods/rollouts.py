"""One step, the same on every rank: draw what the algorithm asks for, score it and send it back."""

import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pods import advantages
from pods.advantages import Advantage
from pods.algorithms import Algorithm
from pods.batch import AlgorithmError, Batch, Prompt, Rollout, Selection, Step, Visit
from pods.clock import Clock
from pods.rules import checked


@dataclass(frozen=True, eq=False)
class Record:
    """A finished step: R rollouts of G prompts, and those that are trained on."""

    step: Step
    prompts: list[Prompt]  # (G,) in the order of first appearance
    rollouts: list[Rollout]  # (R,)
    batch: Batch
    selection: Selection  # ascending, with advantages, except where TRL's own stand
    rounds: int  # of generation

    def summary(self) -> dict[str, float]:
        """Numbers of the step, where defined: all/* of R rollouts, kept/* of those trained on."""
        batch, kept = self.batch, self.selection.kept
        rewards = pd.Series(batch.rewards.astype(float))  # its statistics leave NaN out
        groups, of_kept = (r.groupby(batch.prompt[r.index]) for r in (rewards, rewards[kept]))
        values = {
            "all/reward_mean": rewards.mean(),
            "all/reward_std": groups.std(ddof=0).mean(),  # of a prompt
            "all/reward_variance": groups.var(ddof=0).mean(),
            "all/reward_min": rewards.min(),
            "all/reward_max": rewards.max(),
            "all/zero_variance_groups": (groups.nunique() == 1).mean(),
            "all/completion_length_mean": batch.lengths.mean(),
            "all/completion_length_max": batch.lengths.max(),
            "all/clipped_ratio": batch.clipped.mean(),
            "kept/reward_mean": rewards[kept].mean(),
            "kept/reward_variance": of_kept.var(ddof=0).mean(),
            "kept/completion_length_mean": mean(batch.lengths[kept]),
            **{f"all/{name}_mean": mean(scores) for name, scores in batch.by_function.items()},
            "generate/rounds": self.rounds,
            "generate/rollouts": len(batch),
            "select/filled": self.step.budget - len(kept),
        }
        return {name: float(value) for name, value in values.items() if not np.isnan(value)}

    def visits(self) -> Iterator[tuple[Prompt, Visit]]:
        batch = self.batch
        for p, group in enumerate(batch.groups):
            correct = None if batch.correct is None else mean(batch.correct[group])
            visit = Visit(self.step.number, mean(batch.rewards[group]), correct, p in batch.alive)
            yield self.prompts[p], visit


@dataclass(frozen=True)
class Driver:
    algorithm: Algorithm
    advantage: Advantage
    draw: Callable[[list[Prompt], list[int]], list[Rollout]]  # with the index of each rollout
    score: Callable[[list[Prompt], list[Rollout]], np.ndarray]  # -> (rollouts, functions)
    weights: dict[str, float]  # of every reward function, in the order of the scores
    correct: str | None  # the reward function whose values above 0 mean correct
    max_rounds: int
    clock: Clock

    def __call__(self, step: Step) -> Record:
        """The paper's algorithm 1, or another one: draw, score and send, until it returns."""
        prompts: list[Prompt] = []  # (G,)
        places: list[int] = []  # (R,) the prompt of each rollout
        rollouts: list[Rollout] = []
        scores = np.zeros((0, len(self.weights)), dtype=np.float32)
        index: dict[Prompt, Iterator[int]] = defaultdict(itertools.count)  # by question
        batch, run, rounds = None, self.algorithm(step), 0
        while True:
            with self.clock.phase("select"), named("algorithm", self.algorithm, step):
                try:
                    request = next(run) if batch is None else run.send(batch)
                except StopIteration as end:
                    selection = self.selected(end.value, batch, step)
                    return Record(step, prompts, rollouts, batch, selection, rounds)
                if (rounds := rounds + 1) > self.max_rounds:
                    raise ValueError(f"asked for more rounds than max_rounds={self.max_rounds}")
                further = requested(request, prompts)
            wanted = [prompts[p] for p in further]
            with self.clock.phase("generate"):
                drawn = self.draw(wanted, [next(index[prompt]) for prompt in wanted])
            with self.clock.phase("score"):
                scores = np.concatenate([scores, self.score(wanted, drawn)])
            places, rollouts = places + further, rollouts + drawn
            batch = self.batch(places, rollouts, scores)

    def batch(self, places: list[int], rollouts: list[Rollout], scores: np.ndarray) -> Batch:
        """What the algorithm receives; rewards add up as in TRL, in float32, None counting as 0."""
        rewards = np.nansum(scores * np.float32([*self.weights.values()]), axis=1, dtype=np.float32)
        rewards[np.isnan(scores).all(axis=1)] = np.nan
        by_function = dict(zip(self.weights, scores.T, strict=True))
        correct = by_function[self.correct] > 0 if self.correct else None
        completions = [rollout.completion for rollout in rollouts]
        lengths, clipped = [len(c.token_ids) for c in completions], [c.clipped for c in completions]
        likely = all(c.logprobs is not None for c in completions)
        logprobs = [mean(c.logprobs) for c in completions] if likely else None
        columns = correct, by_function, lengths, clipped, logprobs
        return Batch(places, rewards, *columns, self.weights)

    def selected(self, value: object, batch: Batch | None, step: Step) -> Selection:
        """What the algorithm returned, checked and in ascending order, with advantages."""
        if batch is None:
            raise ValueError("returned before it asked for rollouts; yield (prompts, count) first")
        choice = value if isinstance(value, Selection) else Selection(value)
        kept = checked(choice.kept, len(batch), None, "it")
        if len(kept) > (most := step.budget):
            raise ValueError(f"returned {len(kept)} rollouts, more than budget = P m = {most}")
        if choice.advantages is not None:
            values = advantages.checked(choice.advantages, len(kept), "it")
            return Selection(kept, values[np.argsort(choice.kept, kind="stable")])
        plain = np.array_equal(batch.prompt, np.repeat(np.arange(step.P), step.m))
        if plain and len(kept) == len(batch) and self.advantage is advantages.over_kept:
            return Selection(kept)  # plain GRPO: TRL's own advantages, to the bit
        with named("advantage", self.advantage, step):
            values = self.advantage(batch, kept)
            return Selection(kept, advantages.checked(values, len(kept), "it"))


def requested(request: object, prompts: list[Prompt]) -> list[int]:
    """The number of the prompt of each rollout that is asked for; new prompts are added."""
    try:
        wanted, count = request
        counts = [count] * len(wanted) if np.ndim(count) == 0 else count
        pairs = list(zip(wanted, map(operator.index, counts), strict=True))
        valid = all(isinstance(prompt, Prompt) and count >= 0 for prompt, count in pairs)
    except (TypeError, ValueError):
        valid = False
    if not valid or not any(count for _, count in pairs):
        rule = "(prompts, count) is required: prompts of step.prompts or step.fresh(k), and one "
        rule += "count or one for each, not all 0"
        raise ValueError(f"yielded {request!r}; {rule}")
    further, known = [], {id(prompt): p for p, prompt in enumerate(prompts)}
    for prompt, count in pairs:
        if count and id(prompt) not in known:
            known[id(prompt)] = len(prompts)
            prompts.append(prompt)
        further += [known.get(id(prompt))] * count
    return further


@contextmanager
def named(kind: str, function: Callable, step: Step) -> Iterator[None]:
    """Errors in this block become AlgorithmErrors that name the function and the step."""
    try:
        yield
    except AlgorithmError:
        raise
    except Exception as error:  # ours, a ValueError, says enough; others need their type
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        where = f"{kind} {getattr(function, '__name__', function)} failed at step {step.number}"
        raise AlgorithmError(f"{where}: {' '.join(reason.split())}") from error


def mean(values: Sequence[float | None] | np.ndarray) -> float:
    """Mean of the values that are not NaN; NaN if there are none."""
    values = np.asarray(values, dtype=np.float64)
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if len(scored) else float("nan")
