"""Updates of any algorithm on recorded rollouts: the sum over those that it keeps of advantage x
weight in the loss x gradient."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from pods.advantages import Advantage, over_kept
from pods.algorithms import grpo
from pods.batch import Algorithm, Completion, Prompt, Record, Rollout, Step
from pods.clock import priced
from pods.config.keys import Prices
from pods.history import History, remember
from pods.pods_config import MEAN_OVER_MICRO_BATCHES, MEAN_OVER_ROWS
from pods.rollouts import Driver
from pods.signal.pool import Pool

VISITS = 1000  # of questions in the simulated steps of a cell
FEWEST_STEPS = 60


class Candidate(NamedTuple):
    """An algorithm at sizes of a step: P prompts, n rollouts and m kept of each."""

    algorithm: str
    prompts: int
    n: int
    m: int

    def __str__(self) -> str:
        return f"{self.algorithm} P={self.prompts} n={self.n} m={self.m}"


@dataclass(frozen=True)
class Recorded(Rollout):
    """A rollout of a pool, and its position among all Q N."""

    position: int


@dataclass(frozen=True)
class Updates:
    """What the simulated updates of one algorithm and size have in common."""

    mean: np.ndarray  # (Q, size) the part of each question in the mean update
    squares: np.ndarray  # (Q,) E|part of a question in an update|^2
    total: float  # E|update|^2
    seconds: float  # of a step
    with_signal: float  # share of the groups of rollouts


class Simulator:
    """Runs algorithms over a pool by the Driver that runs them in training."""

    def __init__(
        self, pool: Pool, loss: str, micro_batch_size: int, mask_truncated: bool = False
    ) -> None:
        self.pool = pool
        self.loss = loss  # as loss.type
        self.micro_batch_size = micro_batch_size
        arrays = {name: np.concatenate(own) for name, own in pool.arrays.items()}  # (Q N, ...)
        self.count = len(arrays["lengths"]) // len(pool.rows)  # N
        self.sketches = arrays["sketches"]
        self.gram = self.sketches @ self.sketches.T  # (Q N, Q N)
        self.scores = arrays["scores"]
        self.tokens = arrays["lengths"] * ~(mask_truncated & arrays["clipped"])
        self.prompts = [Prompt(row["id"], row) for row in pool.rows]
        self.position_of = {prompt: position for position, prompt in enumerate(self.prompts)}
        self.rollouts = []
        for position, logprob in enumerate(arrays["logprobs"]):
            logprobs = None if np.isnan(logprob) else [logprob]
            token_ids = [0] * int(arrays["lengths"][position])  # only their number is known
            completion = Completion(token_ids, arrays["clipped"][position], logprobs)
            self.rollouts.append(Recorded([], completion, "", position))

    def updates(
        self,
        algorithm: Algorithm,
        advantage: Advantage,
        cell: Candidate,
        prices: Prices,
        steps: int | None = None,
    ) -> Updates:
        """Simulates steps, by default until questions were visited VISITS times. Raises
        AlgorithmError."""
        weights = np.zeros(len(self.sketches))  # in the mean update
        squares = np.zeros(len(self.prompts))
        total = seconds = 0.0
        groups = with_signal = 0
        if steps is None:
            steps = max(FEWEST_STEPS, VISITS // cell.prompts)
        rng = np.random.default_rng(0)
        for record in self.records(algorithm, advantage, cell, steps, rng):
            positions = np.array(
                [record.rollouts[i].position for i in record.selection.kept], dtype=int
            )
            values = record.selection.advantages
            if values is None:
                values = over_kept(record.batch, record.selection.kept)
            values = values * self.loss_weights(self.tokens[positions], record.step.budget, rng)
            np.add.at(weights, positions, values / steps)
            question = positions // self.count
            products = self.gram[np.ix_(positions, positions)] * np.outer(values, values)
            own = np.where(question[:, None] == question, products, 0).sum(axis=1)
            squares += np.bincount(question, own, len(squares)) / steps
            total += products.sum() / steps
            lengths = record.batch.lengths
            phases = priced(prices, record.rounds, lengths, lengths[record.selection.kept])
            seconds += sum(phases.values()) / steps
            groups += len(record.batch.groups)
            with_signal += len(record.batch.with_signal)
        parts = (weights[:, None] * self.sketches).reshape(len(self.prompts), self.count, -1)
        return Updates(parts.sum(axis=1), squares, total, seconds, with_signal / groups)

    def loss_weights(self, tokens: np.ndarray, budget: int, rng: np.random.Generator) -> np.ndarray:
        """(K,) what each row's own loss is multiplied with in that of a step of `budget` rows."""
        rows = len(tokens)
        if self.loss in MEAN_OVER_ROWS:
            return np.full(rows, 1 / max(1, rows))
        micro_batch = np.zeros(rows, dtype=int)  # of each row: dapo has one mean over all tokens
        if self.loss in MEAN_OVER_MICRO_BATCHES:
            size = min(self.micro_batch_size, budget)
            micro_batch = rng.permutation(budget)[:rows] // size  # TRL shuffles the rows
        sums = np.bincount(micro_batch, tokens)
        counted = np.count_nonzero(sums)
        return tokens / np.maximum(1, sums)[micro_batch] / max(1, counted)

    def whole(self, advantage: Advantage, prices: Prices) -> np.ndarray:
        """(Q, size) the part of each question in GRPO's update on all that was recorded."""
        cell = Candidate("grpo", len(self.prompts), self.count, self.count)
        return self.updates(grpo, advantage, cell, prices, steps=1).mean

    def records(
        self,
        algorithm: Algorithm,
        advantage: Advantage,
        cell: Candidate,
        steps: int,
        rng: np.random.Generator,
    ) -> Iterator[Record]:
        """Finished steps of an algorithm: the questions come in a random order, again and again; a
        question's rollouts are dealt in a random order, again and again if there are too few."""
        history: History = {}
        every = range(len(self.prompts))
        order = (self.prompts[i] for _ in count() for i in rng.permutation(every))
        dealt: dict[int, np.ndarray] = {}  # of the step: the order of a prompt's rollouts

        def fresh(size: int) -> list[Prompt]:
            # A question that comes twice in a step is two prompts.
            return [Prompt(prompt, prompt.row) for prompt in islice(order, size)]

        def sample(prompts: list[Prompt], indices: list[int]) -> list[Rollout]:
            rollouts = []
            for prompt, index in zip(prompts, indices, strict=True):
                if id(prompt) not in dealt:
                    dealt[id(prompt)] = rng.permutation(self.count)
                position = dealt[id(prompt)][index % self.count]
                rollouts.append(self.rollouts[self.position_of[prompt] * self.count + position])
            return rollouts

        driver = Driver(
            algorithm=algorithm,
            advantage=advantage,
            sample=sample,
            score=lambda _, rollouts: self.scores[[rollout.position for rollout in rollouts]],
            weights=self.pool.facts["weights"],
            correct=self.pool.facts["correct"],
        )
        for number in range(steps):
            dealt.clear()
            step = Step(
                number=number,
                P=cell.prompts,
                n=cell.n,
                m=cell.m,
                prompts=fresh(cell.prompts),
                fresh=fresh,
                history=history,
                rng=rng,
            )
            record = driver(step)
            remember(history, record.visits())
            yield record
