"""Stage 2: which questions a step trains on, chosen from how often the policy got them right.

    uv run train.py prompts=greso   # config/prompts/<name>.yaml: paper, formula, published values

A chooser is a function (history, count, rng, **params) -> count question ids, or None for TRL's
order. The history maps every question of the data set, in its order, to its past visits, the oldest
first. A question that is named k times has k groups of n rollouts in the step. On resume the
history is read back from the ledger, so that a chooser keeps no state.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pods.batch import Batch
from pods.config import functions
from pods.config.keys import TrainConfig, reward_weights

Row = dict[str, Any]
RECORDED = ("step", "question_id", "total", "rewards")  # of a ledger record: what a visit needs


class Visit(NamedTuple):
    """One group of n rollouts of a question."""

    step: int  # optimiser steps done before it
    right: float  # share in 0..1 of the n
    rewards: np.ndarray  # (n,) total rewards


History = dict[str, list[Visit]]


def uniform(history: History, count: int, rng: np.random.Generator) -> None:
    """TRL's own order: every question once an epoch."""


def greso(
    history: History, count: int, rng: np.random.Generator,
    start: float = 0.5, change: float = 0.01, easy: float = 1 / 12, hard: float = 1 / 6,
    lowest: float = 0.01,
) -> list[str]:  # fmt: skip
    """Skip a question with probability 1 - max(p^c, lowest), c: its latest visits in a row that
    were all right, or all wrong. p falls by `change` after a step with a larger share of such
    visits than `easy` or `hard`, and rises otherwise (GRESO, arXiv 2506.02177)."""
    by_step: dict[int, list[float]] = defaultdict(list)
    for visit in (visit for visits in history.values() for visit in visits):
        by_step[visit.step].append(visit.right)
    keep = {1.0: start, 0.0: start}
    for step in sorted(by_step):
        for kind, target in ((1.0, easy), (0.0, hard)):
            often = np.mean(np.equal(by_step[step], kind)) >= target
            keep[kind] = float(np.clip(keep[kind] + (-change if often else change), lowest, 1))
    questions, chosen, skipped = list(history), [], []
    for i in rng.permutation(len(questions)):
        kind, c = streak(history[questions[i]])
        kept = rng.random() < (max(keep[kind] ** c, lowest) if c else 1)
        (chosen if kept else skipped).append(questions[i])
        if len(chosen) == count:
            break
    return (chosen + skipped)[:count]


def mopps(
    history: History, count: int, rng: np.random.Generator,
    target: float = 0.5, decay: float = 0.5, prior: float = 1.0,
) -> list[str]:  # fmt: skip
    """The questions whose draw from the beta posterior of their share right is nearest to `target`;
    each visit lets the earlier ones count `decay` as much (MoPPS, arXiv 2507.04632)."""
    shape = np.full((len(history), 2), prior)
    for q, visits in enumerate(history.values()):
        for visit in visits:
            hits = visit.right * len(visit.rewards)
            counted = np.array([hits, len(visit.rewards) - hits])
            shape[q] = decay * shape[q] + (1 - decay) * prior + counted
    distance = np.abs(rng.beta(shape[:, 0], shape[:, 1]) - target)
    return _named(history, np.argsort(distance, kind="stable")[:count])


def easy_to_hard(
    history: History, count: int, rng: np.random.Generator,
    start: float = 0.8, end: float = 0.2, steps: int = 200, width: float = 0.15,
) -> list[str]:  # fmt: skip
    """Draw in proportion to exp(-((p - target) / width)^2 / 2), p: estimated share right; the
    target goes from `start` to `end` in `steps` steps (after E2H, arXiv 2506.06632)."""
    done = 1 + max((visits[-1].step for visits in history.values() if visits), default=-1)
    target = start + (end - start) * min(1, done / steps)
    weights = np.exp(-(((estimates(history) - target) / width) ** 2) / 2) + 1e-12
    drawn = rng.choice(len(history), size=count, replace=False, p=weights / weights.sum())
    return _named(history, drawn)


def knapsack(history: History, count: int, rng: np.random.Generator) -> list[str]:
    """Of `count` questions drawn evenly each may get several groups of n rollouts, or none: the
    groups go one by one to the largest gain in (1 - p^N - (1 - p)^N) p (1 - p)^2, N: its rollouts
    (Knapsack RL, arXiv 2509.25849)."""
    pool = rng.choice(len(history), size=count, replace=False)
    n = next((len(visits[-1].rewards) for visits in history.values() if visits), None)
    if n is None:
        return _named(history, pool)
    p, groups = estimates(history)[pool], np.zeros(count)
    for _ in range(count):
        before, after = (1 - p**size - (1 - p) ** size for size in (n * groups, n * (groups + 1)))
        signal = np.where(groups == 0, after, after - before)  # p^0 + (1 - p)^0 is 2, not 1
        groups[np.argmax(signal * p * (1 - p) ** 2)] += 1
    return _named(history, np.repeat(pool, groups.astype(int)))


CHOOSERS: dict[str, Callable[..., Sequence[str] | None]] = {
    "uniform": uniform,
    "greso": greso,
    "mopps": mopps,
    "easy_to_hard": easy_to_hard,
    "knapsack": knapsack,
}


def streak(visits: list[Visit]) -> tuple[float, int]:
    """1.0 or 0.0, and how many of the latest visits in a row were all right, or all wrong."""
    kind, c = (visits[-1].right, 0) if visits else (0.0, 0)
    if kind in (0.0, 1.0):
        while c < len(visits) and visits[-1 - c].right == kind:
            c += 1
    return kind, c


def estimates(history: History) -> np.ndarray:
    """(questions,) share right of the latest visit, shrunk by one rollout to the mean of all; that
    mean where there was no visit, 0.5 before the first."""
    latest = [visits[-1] for visits in history.values() if visits]
    mean = float(np.mean([visit.right for visit in latest])) if latest else 0.5
    sizes = np.array([len(visits[-1].rewards) if visits else 0 for visits in history.values()])
    rights = np.array([visits[-1].right if visits else 0.0 for visits in history.values()])
    return (sizes * rights + mean) / (sizes + 1)


class Prompts:
    """The questions of a run with their history, and the choice of each step.

    A rollout is right where its `correctness` is above 0; where that reward has no weight, where
    its total reward is above 0.
    """

    def __init__(self, config: TrainConfig) -> None:
        name = config.prompts.name
        own = functions.is_path(name)
        self.choose = functions.load("prompts.name", name) if own else CHOOSERS[name]
        self.params, self.seed = config.prompts.params, config.seed
        self.by_correctness = bool(reward_weights(config.rewards).get("correctness"))
        self.history: History = {}

    def open(self, dataset: Any) -> None:
        """Take the `datasets.Dataset` of the run, before its first step."""
        self.dataset = dataset
        self.places = {str(name): i for i, name in enumerate(dataset["id"])}
        self.history = {name: [] for name in self.places}

    def __call__(self, given: list[Row], step: int) -> list[Row]:
        """The P rows of a step; `given` are those of TRL's order. Raises ValueError where the
        chooser returns other than P known questions."""
        if self.choose is uniform:
            return given
        rng = np.random.default_rng([self.seed, step, 1])
        chosen = self.choose(self.history, len(given), rng, **self.params)
        if chosen is None:
            return given
        unknown = [name for name in chosen if name not in self.places]
        if unknown or len(chosen) != len(given):
            raise ValueError(
                f"returned {len(chosen)} question ids, of which {len(unknown)} are unknown; "
                f"{len(given)} ids of the history are required"
            )
        return [self.dataset[self.places[name]] for name in chosen]

    def others(self, used: Iterable[str], count: int, rng: np.random.Generator) -> list[Row]:
        """`count` rows, or as many as there are, drawn evenly from those not `used`."""
        free = np.setdiff1d(np.arange(len(self.places)), [self.places[name] for name in used])
        drawn = rng.choice(free, size=min(count, len(free)), replace=False)
        return [self.dataset[int(i)] for i in drawn]

    def note(self, batch: Batch) -> None:
        """Add the groups of a finished step to the history."""
        if self.choose is uniform:
            return
        self.restore(
            {
                "step": batch.step + 1,
                "question_id": name,
                "total": batch.rewards[p],
                "rewards": {key: values[p] for key, values in batch.by_function.items()},
            }
            for p, name in enumerate(batch.question_ids)
        )

    def restore(self, records: Iterable[dict[str, Any]]) -> None:
        """Add ledger records to the history; float32 gives the rewards of the ledger back."""
        for record in records:
            total = np.asarray(record["total"], dtype=np.float32)
            correct = record["rewards"]["correctness"] if self.by_correctness else total
            visit = Visit(record["step"] - 1, float(np.mean(np.greater(correct, 0))), total)
            self.history[str(record["question_id"])].append(visit)


def problems(config: TrainConfig) -> Iterator[str]:
    """Whether a built-in chooser runs with the parameters of the config; one line where not."""
    name, params = config.prompts.name, config.prompts.params
    if name in CHOOSERS:
        history = {"a": [Visit(0, 1.0, np.ones(2))], "b": [Visit(0, 0.5, np.arange(2.0))]}
        try:
            CHOOSERS[name](history, 1, np.random.default_rng(0), **params)
        except (ValueError, TypeError, ArithmeticError) as error:
            yield f"prompts.params={params}: {name} cannot use them ({error}); see its YAML file"
    if name == "knapsack" and config.prompts_per_step < 2:
        yield (
            "prompts=knapsack prompts_per_step=1: it shares the groups of a step out; set 2 or more"
        )


def _named(history: History, places: np.ndarray) -> list[str]:
    questions = list(history)
    return [questions[i] for i in places]
