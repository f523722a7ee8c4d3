"""The arithmetic of evaluation: accuracy, pass@k and majority@k, with 95 % bootstrap intervals.

Arrays in, arrays out: axis 0 is the question, axis 1 the repeat. Intervals resample questions,
because the repeats of one question are not independent. The published code has none of this.
    pytest tests/test_metrics.py
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

RESAMPLES = 1000  # the 2.5 % ends then vary by about 2 % of the interval's width
EDGE = 10  # expected right (or wrong) questions; with fewer a bootstrap interval is too narrow
SUBSETS = 256  # above this many subsets of k repeats, majority@k takes a fixed sample of them


def pass_at_k(correct: np.ndarray, k: int) -> np.ndarray:
    """Per question, the chance that k of its repeats, drawn without return, hold a correct one.

    correct: (questions, repeats) of 0/1; returns (questions,). Unbiased: 1 - C(n - c, k) / C(n, k)
    (Chen et al. 2021, eq. 1) in whole numbers. Raises ValueError unless 1 <= k <= repeats.
    """
    n = _repeats(correct, k)
    return np.array([1.0 - comb(n - int(c), k) / comb(n, k) for c in np.sum(correct, axis=1)])


def majority_at_k(votes: Sequence[Sequence[Hashable]], correct: np.ndarray, k: int) -> np.ndarray:
    """Per question, the chance that the most frequent answer among k of its repeats is correct.

    votes: the class of equal answers that each repeat votes for, None for no vote; correct as in
    pass_at_k. The mean over all subsets of k (or 256 fixed ones) is unbiased. A tie counts by the
    share of the tied answers that are correct, because a fair coin would decide it.
    """
    subsets = _subsets(_repeats(correct, k), k)
    rows = zip(votes, np.asarray(correct).tolist(), strict=True)
    return np.array([np.mean([_majority(*row, subset) for subset in subsets]) for row in rows])


def intervals(values: np.ndarray) -> list[dict[str, float]]:
    """The mean of each row with its 95 % interval; values: (metrics, questions).

    One set of resamples serves all rows and all checkpoints of a task: differences are paired.
    A share near 0 or 1 has Wilson's interval, because every resample of 0 of 30 is 0.
    """
    values = np.asarray(values, dtype=float)
    weights = _resample_weights(values.shape[1])
    # Row by row: a product of matrices would round by how many metrics were asked for.
    resampled = np.array([weights @ row for row in values])  # (metrics, RESAMPLES)
    ends = np.quantile(resampled, [0.025, 0.975], axis=1)
    for i, row in enumerate(values):
        rare = len(row) * min(row.mean(), 1 - row.mean()) < EDGE
        if rare and row.min() >= 0 and row.max() <= 1:
            ends[:, i] = _wilson(row)
    columns = np.stack([values.mean(axis=1), *ends], axis=1).tolist()
    return [dict(zip(("mean", "low", "high"), row, strict=True)) for row in columns]


def _wilson(row: np.ndarray) -> tuple[float, float]:
    """Wilson's 95 % interval for the mean of shares, (questions,).

    Means over repeats vary less than 0/1 does: they count as so many more questions.
    """
    mean, n, z = row.mean(), len(row), 1.96
    if row.var() > 0:
        n *= mean * (1 - mean) / row.var()
    centre, half = mean + z**2 / (2 * n), z * np.sqrt(mean * (1 - mean) / n + (z / (2 * n)) ** 2)
    return (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)


def _majority(votes: Sequence[Hashable], correct: Sequence[float], subset: Sequence[int]) -> float:
    ballots: dict[Hashable, list[float]] = {}
    for i in subset:
        if votes[i] is not None:
            ballots.setdefault(votes[i], []).append(correct[i])
    if not ballots:
        return 0.0
    most = max(map(len, ballots.values()))
    tied = [sum(flags) / most for flags in ballots.values() if len(flags) == most]
    return sum(tied) / len(tied)


def _repeats(correct: np.ndarray, k: int) -> int:
    repeats = np.shape(correct)[1]
    if not 1 <= k <= repeats:
        raise ValueError(f"k={k}: must lie in 1..{repeats}, the number of repeats")
    return repeats


@lru_cache
def _subsets(repeats: int, k: int) -> list[tuple[int, ...]]:
    if comb(repeats, k) <= SUBSETS:
        return list(combinations(range(repeats), k))
    rng = np.random.default_rng([repeats, k])
    return [tuple(rng.choice(repeats, size=k, replace=False).tolist()) for _ in range(SUBSETS)]


@lru_cache
def _resample_weights(questions: int) -> np.ndarray:
    """(RESAMPLES, questions): each row, the share of every question in one bootstrap resample."""
    rng = np.random.default_rng(questions)
    return rng.multinomial(questions, np.full(questions, 1 / questions), size=RESAMPLES) / questions
