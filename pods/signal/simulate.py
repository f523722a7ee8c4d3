"""Updates of any algorithm on recorded rollouts: the sum over those that it keeps of advantage x
weight in the loss x gradient."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pods.advantages import Advantage, over_kept
from pods.algorithms import grpo
from pods.batch import Algorithm, Completion, Prompt, Record, Rollout, Step
from pods.clock import priced
from pods.config.keys import Prices, TrainConfig
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
    """A rollout of a pool, and its place among all Q N."""

    place: int


@dataclass(frozen=True)
class Loss:
    """How the loss of a run weighs the rows of a step."""

    type: str  # as in loss.type
    micro_batch_size: int
    mask_truncated: bool

    @classmethod
    def of(cls, training: TrainConfig) -> "Loss":
        """That of a training."""
        keys = training.loss
        return cls(keys.type, training.micro_batch_size, keys.mask_truncated_completions)

    def weights(self, tokens: np.ndarray, budget: int, rng: np.random.Generator) -> np.ndarray:
        """(K,) what each row's own loss is multiplied with in that of a step of `budget` rows."""
        rows = len(tokens)
        if self.type in MEAN_OVER_ROWS:
            return np.full(rows, 1 / max(1, rows))
        micro_batch = np.zeros(rows, dtype=int)  # of each row: dapo has one mean over all tokens
        if self.type in MEAN_OVER_MICRO_BATCHES:
            size = min(self.micro_batch_size, budget)
            micro_batch = rng.permutation(budget)[:rows] // size  # TRL shuffles the rows
        sums = np.bincount(micro_batch, tokens)
        counted = np.count_nonzero(sums)
        return tokens / np.maximum(1, sums)[micro_batch] / max(1, counted)


@dataclass(frozen=True)
class Updates:
    """What the simulated updates of one algorithm and size have in common."""

    halves: np.ndarray  # (2, Q, size) the part of each question in the mean of every other update
    squares: np.ndarray  # (Q,) E|part of a question in an update|^2
    total: float  # E|update|^2
    seconds: float  # of a step
    alive: float  # share of the groups of rollouts with signal

    @property
    def mean(self) -> np.ndarray:
        """(Q, size) the part of each question in the mean update."""
        return self.halves.mean(axis=0)


class Simulator:
    """Runs algorithms over a pool by the Driver that runs them in training."""

    def __init__(self, pool: Pool, loss: Loss) -> None:
        self.pool = pool
        self.loss = loss
        self.count = pool.lengths.shape[1]  # N
        self.sketches = pool.sketches.reshape(len(pool) * self.count, -1)
        self.gram = self.sketches @ self.sketches.T  # (Q N, Q N)
        self.scores = pool.scores.reshape(len(self.sketches), -1)
        self.tokens = pool.lengths.flatten()
        if loss.mask_truncated:
            self.tokens = np.where(pool.clipped.flatten(), 0, self.tokens)
        self.prompts = [Prompt(row["id"], row) for row in pool.rows]
        self.place_of = {prompt: place for place, prompt in enumerate(self.prompts)}
        self.rollouts = []
        facts = zip(pool.lengths.flat, pool.clipped.flat, pool.logprobs.flat, strict=True)
        for place, (length, clipped, logprob) in enumerate(facts):
            logprobs = None if np.isnan(logprob) else [logprob]
            token_ids = [0] * int(length)  # only their number is known
            completion = Completion(token_ids, clipped, logprobs)
            self.rollouts.append(Recorded([], completion, "", place))

    def updates(
        self,
        algorithm: Algorithm,
        advantage: Advantage,
        cell: Candidate,
        prices: Prices,
        steps: int | None = None,
    ) -> Updates:
        """Simulates steps, by default until questions were visited VISITS times; an even number of
        them. Raises AlgorithmError."""
        weights = np.zeros((2, len(self.sketches)))  # (2, Q N) in the means of the halves
        squares = np.zeros(len(self.pool))
        total = seconds = 0.0
        groups = alive = 0
        if steps is None:
            steps = max(FEWEST_STEPS, VISITS // cell.prompts // 2 * 2)
        rng = np.random.default_rng(0)
        for record in self.records(algorithm, advantage, cell, steps, rng):
            places = np.array([record.rollouts[i].place for i in record.selection.kept], dtype=int)
            values = record.selection.advantages
            if values is None:
                values = over_kept(record.batch, record.selection.kept)
            values = values * self.loss.weights(self.tokens[places], record.step.budget, rng)
            np.add.at(weights[record.step.number % 2], places, 2 * values / steps)
            question = places // self.count
            products = self.gram[np.ix_(places, places)] * np.outer(values, values)
            own = np.where(question[:, None] == question, products, 0).sum(axis=1)
            squares += np.bincount(question, own, len(squares)) / steps
            total += products.sum() / steps
            lengths = record.batch.lengths
            phases = priced(prices, record.rounds, lengths, lengths[record.selection.kept])
            seconds += sum(phases.values()) / steps
            groups += len(record.batch.groups)
            alive += len(record.batch.alive)
        weights = weights.reshape(2, len(self.pool), self.count)
        halves = np.einsum("hqn,qns->hqs", weights, self.pool.sketches)
        return Updates(halves, squares, total, seconds, alive / groups)

    def whole(self, advantage: Advantage, prices: Prices) -> np.ndarray:
        """(Q, size) the part of each question in GRPO's update on all that was recorded."""
        cell = Candidate("grpo", len(self.pool), self.count, self.count)
        return self.updates(grpo, advantage, cell, prices, steps=2).mean

    def records(
        self,
        algorithm: Algorithm,
        advantage: Advantage,
        cell: Candidate,
        steps: int,
        rng: np.random.Generator,
    ) -> Iterator[Record]:
        """Finished steps of an algorithm: the questions come in a random order, again and again; a
        question's rollouts are dealt without repetition while there are others."""
        history: History = {}
        order = self.order(rng)
        dealt: dict[int, np.ndarray] = {}  # of the step: the order of a prompt's rollouts
        used: set[Prompt] = set()  # questions of the step

        def fresh(count: int) -> list[Prompt]:
            prompts = []
            while len(prompts) < count:
                if len(used) == len(self.prompts):
                    used.clear()
                prompt = next(order)
                if prompt not in used:
                    used.add(prompt)
                    prompts.append(prompt)
            return prompts

        def draw(prompts: list[Prompt], indices: list[int]) -> list[Rollout]:
            rollouts = []
            for prompt, index in zip(prompts, indices, strict=True):
                if id(prompt) not in dealt:
                    dealt[id(prompt)] = rng.permutation(self.count)
                repeated = index >= self.count
                place = rng.integers(self.count) if repeated else dealt[id(prompt)][index]
                rollouts.append(self.rollouts[self.place_of[prompt] * self.count + place])
            return rollouts

        driver = Driver(
            algorithm=algorithm,
            advantage=advantage,
            draw=draw,
            score=lambda _, rollouts: self.scores[[rollout.place for rollout in rollouts]],
            weights=self.pool.facts["weights"],
            correct=self.pool.facts["correct"],
        )
        for number in range(steps):
            dealt.clear()
            used.clear()
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

    def order(self, rng: np.random.Generator) -> Iterator[Prompt]:
        """All questions in a random order, again and again."""
        while True:
            for place in rng.permutation(len(self.prompts)):
                prompt = self.prompts[place]
                yield Prompt(prompt, prompt.row)  # twice in a step, it is two prompts
