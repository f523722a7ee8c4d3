"""Stage 3: one step of the paper's algorithm 1, as TRL's `rollout_func`.

    sample n rollouts of each prompt -> rewards -> keep m by the rule -> advantages on the kept

TRL receives the kept rollouts and their advantages, and makes the update. Log-probabilities, loss
and optimiser therefore see m rows per prompt, never n.

With several ranks each generates and scores an equal share of all P * n rollouts; the shares are
gathered, every rank selects alike on whole prompts, and trains on an equal share of the kept ones.
The published 8-GPU code selects a wrong subset.
"""

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from accelerate.utils import set_seed

from pods import advantages, ranks, rules
from pods.clock import Clock
from pods.config.keys import TrainConfig
from pods.curriculum import Prompts, Row
from pods.engines import Completion, Engine, Live, Request, Work, seed_of, texts
from pods.resampling import Drawn, Resampling
from pods.rules import Batch, Selection
from pods.scoring import Rewards
from pods.tasks import encode_prompt
from pods.training import gradient_noise
from pods.training.guard import Guard


class RuleError(RuntimeError):
    """A rule, an advantage function or a chooser of prompts raised, or returned what cannot be
    trained on."""


@contextmanager
def named(what: str, function: Any, step: int) -> Iterator[None]:
    """Errors in this block become RuleErrors that name the function; ValueErrors, which our own
    checks raise, already say enough."""
    try:
        yield
    except Exception as error:
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        name = rules.label(function)
        raise RuleError(f"{what} {name} failed at step {step}: {reason}") from error


@dataclass(frozen=True, eq=False)
class Step(Drawn):
    """The rollouts of one step, P prompts with n completions each, and those that are kept."""

    selection: Selection  # of K = P * m, with advantages
    drawn: Batch | None = None  # (R, n) rollouts of all rounds, where there may be several
    rounds: int = 1  # of generation

    @property
    def all_drawn(self) -> Batch:
        """The rollouts of all rounds; P x n where there is one."""
        return self.batch if self.drawn is None else self.drawn

    def kept_of(self, p: int) -> list[int]:
        """Indices among the n rollouts of prompt p that are kept, ascending."""
        n = self.batch.shape[1]
        return [int(i) - p * n for i in self.selection.kept if i // n == p]


class Rollouts:
    """Callable that TRL hands its prompts to; `newest` holds the last step, on every rank.

    Every completion's seed is a function of (seed, step, question id, index), so that rollouts
    depend on weights and position alone: a resumed run repeats them, and runs that differ in n,
    prompts per step or ranks share them.
    """

    def __init__(self, config: TrainConfig, engine: Engine, rewards: Rewards, clock: Clock) -> None:
        self.engine, self.rewards, self.clock = engine, rewards, clock
        self.rule = rules.find(config.rule.name)
        self.rule_params = config.rule.params
        self.advantage = advantages.find(config.advantage.name)
        self.advantage_params = config.advantage.params
        self.prompts = Prompts(config)
        self.resample = Resampling(config, self.prompts)
        self.n, self.seed = config.rollouts_per_prompt, config.seed
        self.sampling = config.sampling
        self.correction = config.engine.importance_sampling_correction  # TRL's loss needs them
        self.logprobs = self.correction or config.rule.needs_logprobs  # wanted at every step
        self.reseed = True  # False: the generators run on, as in the stock trainer
        self.guard: Guard | None = None  # set with the trainer that it compares the engine to
        self.newest: Step | None = None
        self.noise_every = config.planner.gradient_noise_every
        self.noise: dict[str, float] = {}  # of the newest step, where measured

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list | None]:
        """One step of the paper's algorithm 1: sample n rollouts, compute rewards, down-sample to m
        and take advantages on those; TRL makes the policy update with the returned rows."""
        rows = group_rows(
            ranks.gather(prompts), ranks.gather(trainer.dataset_rows),
            trainer.num_generations,
        )  # fmt: skip
        step = trainer.state.global_step
        if self.reseed:  # TRL shuffles the kept rows, and engine=trl samples, from torch's state
            set_seed(seed_of(self.seed, step, ranks.rank()) % 2**32)
        with self.clock.phase("generate"), named("prompts", self.prompts.choose, step):
            rows = self.prompts(rows, step)  # those of TRL's order, or chosen from the history
        drawn = self.sample(rows, trainer=trainer)  # n rollouts of each prompt and their rewards
        drawn, everything, count = self.resample(drawn, partial(self.sample, trainer=trainer))
        with self.clock.phase("select"), self.history_kept_on_error():
            # down-sample to m of each prompt, and take advantages on those
            selection = self.select(drawn.batch, budget=trainer.num_generations * len(rows))
            selection = self.resample.padded(drawn.batch, selection)
        self.newest = Step(**vars(drawn), selection=selection, drawn=everything, rounds=count)
        return hand_over(self.newest, self.correction)

    def sample(self, rows: list[Row], before: Sequence[Row] = (), *, trainer: Any) -> Drawn:
        """n rollouts of each prompt with their rewards; `before`: prompts of this step that already
        have rollouts."""
        step, tokenizer = trainer.state.global_step, trainer.processing_class
        with self.clock.phase("generate"):
            requests = self.requests(rows, step, tokenizer, before)
            completions, written = self.generate(requests, trainer.model, step, tokenizer)
        with self.clock.phase("score"):
            batch = self.score(rows, completions, written, step)
        return Drawn(rows, requests, completions, written, batch)

    def requests(
        self, rows: list[Row], step: int, tokenizer: Any, before: Sequence[Row] = ()
    ) -> list[Request]:
        """The prompts with the seeds of their n completions; the index of a question that comes
        again in the step goes on."""
        found, drawn = [], Counter(row["id"] for row in before)
        for row in rows:
            indices = range(self.n * drawn[row["id"]], self.n * (drawn[row["id"]] + 1))
            seeds = [seed_of(self.seed, step, row["id"], i) for i in indices]
            found.append(Request(encode_prompt(row["prompt"], tokenizer), seeds))
            drawn[row["id"]] += 1
        return found

    def generate(
        self, requests: list[Request], model: Any, step: int, tokenizer: Any
    ) -> tuple[list[list[Completion]], list[list[str]]]:
        """(P, n) completions and their texts; this rank draws and decodes its share of P * n."""
        mine, policy = share_of(requests), Live(model, step)
        wanted = self.logprobs or (self.guard is not None and self.guard.due(step))
        ((_, done),) = self.engine.generate([Work(mine, policy)], logprobs=wanted)
        if self.guard is not None:
            self.guard.check(self.engine, mine, done, policy, step)
        drawn = [completion for group in done for completion in group]
        if not self.logprobs:
            drawn = [replace(completion, logprobs=None) for completion in drawn]
        written = ranks.gather(texts(tokenizer, drawn, self.sampling.stop))
        drawn = ranks.gather(drawn)
        starts = range(0, len(drawn), self.n)
        return [drawn[i : i + self.n] for i in starts], [written[i : i + self.n] for i in starts]

    def score(
        self, rows: list[Row], completions: list[list[Completion]], written: list[list[str]],
        step: int,
    ) -> Batch:  # fmt: skip
        """The batch that rules and advantages see; this rank scores its share of P * n."""
        mine = ranks.share(len(rows) * self.n)
        scores = self.rewards(
            [row for row in rows for _ in range(self.n)][mine],
            [text for group in written for text in group][mine],
            [c.token_ids for group in completions for c in group][mine],
            step,
        )
        by_function = {
            name: np.array(ranks.gather(values)).reshape(len(rows), self.n)
            for name, values in scores.items()
        }
        return Batch(
            rewards=total(by_function, self.rewards.weights),
            by_function=by_function,
            weights=self.rewards.weights,
            lengths=np.array([[len(c.token_ids) for c in group] for group in completions]),
            clipped=np.array([[c.clipped for c in group] for group in completions]),
            logprobs=mean_logprobs(completions),
            question_ids=np.array([str(row["id"]) for row in rows]),
            step=step,
        )

    def select(self, batch: Batch, budget: int) -> Selection:
        """The rollouts that the rule keeps, with its advantages or those of the advantage function;
        RuleError where one fails."""
        rng = np.random.default_rng([self.seed, batch.step])
        with named("rule", self.rule, batch.step):
            chosen = rules.select_batch(self.rule, batch, budget, rng=rng, **self.rule_params)
        if chosen.advantages is None:
            with named("advantage", self.advantage, batch.step):
                found = self.advantage(batch, chosen.kept, **self.advantage_params)
                found = advantages.checked(found, len(chosen.kept))
            chosen = replace(chosen, advantages=found)
        return chosen

    def measure_noise(self, trainer: Any, batch: dict[str, Any]) -> None:
        """Every planner.gradient_noise_every steps the noise of the gradient, off the clock; not
        where a rule keeps more of one prompt than of another."""
        self.noise = {}
        step, every = self.newest, self.noise_every
        if not every or trainer.state.global_step % every:
            return
        if len({len(step.kept_of(p)) for p in range(len(step.rows))}) == 1:
            with self.clock.phase("gradient_noise"):
                self.noise = gradient_noise.measure(trainer, batch, trainer.num_generations)

    def state(self) -> dict[str, Any] | None:
        """The history of a rule that keeps one, None for others."""
        return self.rule.state() if hasattr(self.rule, "state") else None

    def load(self, state: dict[str, Any] | None) -> None:
        """Restore what `state` returned."""
        if state is not None:
            self.rule.load(state)

    @contextmanager
    def history_kept_on_error(self) -> Iterator[None]:
        """A step that fails leaves the rule's history as it was: the step is repeated on resume."""
        before = copy.deepcopy(self.state())
        try:
            yield
        except RuleError:
            self.load(before)
            raise


def hand_over(step: Step, logprobs: bool) -> dict[str, list | None]:
    """This rank's share of the kept rollouts, in the form that TRL's rollout_func returns."""
    kept, n = step.selection.kept, step.batch.shape[1]
    places = [divmod(int(i), n) for i in kept[ranks.share(len(kept))]]
    kept = [step.completions[p][i] for p, i in places]
    return {
        "prompt_ids": [list(step.requests[p].prompt) for p, _ in places],
        "completion_ids": [completion.token_ids for completion in kept],
        "logprobs": [c.logprobs for c in kept] if logprobs else None,
    }


def total(by_function: dict[str, np.ndarray], weights: dict[str, float]) -> np.ndarray:
    """(P, n) weighted sum in float32, the precision in which TRL adds rewards up."""
    parts = [
        values.astype(np.float32) * np.float32(weights[name])
        for name, values in by_function.items()
    ]
    return np.sum(parts, axis=0, dtype=np.float32)


def mean_logprobs(completions: list[list[Completion]]) -> np.ndarray | None:
    """(P, n) mean log-probability of a completion's tokens, None where the engine gave none."""
    if any(c.logprobs is None for group in completions for c in group):
        return None
    return np.array([[np.mean(c.logprobs) for c in group] for group in completions])


def share_of(requests: list[Request]) -> list[Request]:
    """This rank's equal part of all completions; a prompt may be cut between two ranks."""
    n = len(requests[0].seeds)
    part = ranks.share(len(requests) * n)
    cut = [
        Request(
            request.prompt, request.seeds[max(0, part.start - p * n) : max(0, part.stop - p * n)]
        )
        for p, request in enumerate(requests)
    ]
    return [request for request in cut if request.seeds]


def group_rows(prompts: list[str], rows: list[Row], m: int) -> list[Row]:
    """One dataset row per prompt of the step. TRL sends each prompt m times in a row; two
    neighbours may hold the same text, so groups go by position. Raises RuntimeError where the rows
    are no whole groups."""
    if len(rows) != len(prompts) or len(prompts) % m:
        raise RuntimeError(f"{len(prompts)} prompts for {len(rows)} rows are no groups of {m}")
    starts = range(0, len(prompts), m)
    if any(rows[s]["id"] != rows[s + j]["id"] for s in starts for j in range(m)):
        raise RuntimeError(f"a group of {m} straddles two groups of rows: they came out of order")
    return [rows[s] for s in starts]
