"""How much of an update is signal, and which cells (algorithm and sizes) give most of it a second.

With the mean mu of an update u over steps, and the trace of its covariance E|u|^2 - |mu|^2,

    SNR2 = |mu|^2 / (E|u|^2 - |mu|^2)
    rate = SNR2 / (1 + SNR2) / seconds = |mu|^2 / E|u|^2 / seconds     of a step

|mu|^2 is summed over pairs of different questions, so that no rollout's noise counts as signal: the
mean over all ways to split the questions in halves. Intervals: questions are resampled, the same
ones for all cells.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pods.signal.simulate import Updates

RESAMPLES = 1000
ENDS = (2.5, 97.5)  # percentiles of a 95 % interval


class Cell(NamedTuple):
    """An algorithm at sizes of a step: P prompts, n rollouts and m kept of each."""

    algorithm: str
    prompts: int
    n: int
    m: int

    def __str__(self) -> str:
        return f"{self.algorithm} P={self.prompts} n={self.n} m={self.m}"


def resamples(questions: int, count: int, seed: int = 0) -> np.ndarray:
    """(1 + count, Q) how often each question is taken: once, then in `count` random samples."""
    rng = np.random.default_rng(seed)
    shares = np.full(questions, 1 / questions)
    return np.vstack([np.ones(questions, int), rng.multinomial(questions, shares, count)])


def inner(one: np.ndarray, other: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(samples,) inner products of two mean updates, from pairs of different questions.

    one, other: (Q, size) the part of each question; counts: (samples, Q).
    """
    products = one @ other.T
    np.fill_diagonal(products, 0)
    pairs = counts.sum(axis=1) ** 2 - (counts**2).sum(axis=1)
    summed = ((counts @ products) * counts).sum(axis=1)
    return summed * len(one) ** 2 / pairs


def share_of_signal(updates: Updates, counts: np.ndarray) -> np.ndarray:
    """(samples,) |mu|^2 / E|u|^2 = SNR2 / (1 + SNR2); 0 if no update is other than 0."""
    if not updates.total:
        return np.zeros(len(counts))
    total = updates.total * (counts @ updates.squares) / updates.squares.sum()
    return inner(updates.mean, updates.mean, counts) / total


def interval(samples: np.ndarray) -> list[float]:
    """95 % of the resamples; the first sample is the estimate."""
    return np.percentile(samples[1:], ENDS).tolist()


class Comparison:
    """Cells by their rate, and against the reference: GRPO at a run's own sizes."""

    def __init__(self, updates: dict[Cell, Updates], reference: Cell) -> None:
        self.updates = updates
        self.reference = reference
        counts = resamples(len(updates[reference].mean), RESAMPLES)
        self.shares = {cell: share_of_signal(own, counts) for cell, own in updates.items()}
        self.rates = {cell: share / updates[cell].seconds for cell, share in self.shares.items()}
        self.counts = counts[:1]

    def is_resolved(self, cell: Cell) -> bool:
        """Whether the mean update differs from 0 for sure."""
        share = self.shares[cell]
        return share[0] > 0 and interval(share)[0] > 0

    @cached_property
    def ranking(self) -> list[Cell]:
        """The resolved cells, the highest rate first."""
        resolved = filter(self.is_resolved, self.updates)
        return sorted(resolved, key=lambda cell: -self.rates[cell][0])

    def ratio(self, cell: Cell, other: Cell) -> tuple[float, list[float]]:
        """The rate of a cell over that of another, with its interval; both must be resolved."""
        samples = self.rates[cell] / self.rates[other]
        return float(samples[0]), interval(samples)

    def cosine(self, cell: Cell) -> float:
        """Of the mean update and the reference's; above 1 by noise. Both must be resolved."""
        mean, other = self.updates[cell].mean, self.updates[self.reference].mean
        lengths = [inner(x, x, self.counts)[0] for x in (mean, other)]
        return float(inner(mean, other, self.counts)[0] / np.sqrt(np.prod(lengths)))

    def row(self, cell: Cell) -> dict[str, Any]:
        """The figures of a cell; None below the resolution."""
        share = self.shares[cell]
        ratios = share / (1 - share)  # SNR2
        row = cell._asdict() | {
            "snr2": None,
            "snr2_ci95": interval(ratios),
            "cosine": None,
            "seconds_per_step": self.updates[cell].seconds,
            "rate": None,
            "relative": None,
            "relative_ci95": None,
            "alive": self.updates[cell].alive,
        }
        if not self.is_resolved(cell):
            return row
        row |= {"snr2": float(ratios[0]), "rate": float(self.rates[cell][0])}
        if self.is_resolved(self.reference):
            row["cosine"] = self.cosine(cell)
            row["relative"], row["relative_ci95"] = self.ratio(cell, self.reference)
        return row

    def verdict(self) -> list[str]:
        """The best cell, what it is ahead of for sure, and what cannot be told from it."""
        if not self.ranking:
            return [
                "below the resolution: no mean update can be told from noise; record more with "
                "questions= and rollouts="
            ]
        best, *others = self.ranking
        lines = [f"best: {best}"]
        if self.is_resolved(self.reference):
            lines[0] += f", {times(*self.ratio(best, self.reference))} {self.reference}"
        else:
            lines.append(f"below the resolution: {self.reference}, the reference")
        firsts = {cell.algorithm: cell for cell in reversed(others)}  # of each algorithm
        ahead: list[str] = []
        level: list[str] = []
        for cell in others:
            if cell.algorithm == best.algorithm or firsts[cell.algorithm] != cell:
                continue
            ratio, (low, high) = self.ratio(best, cell)
            text = f"{cell} ({ratio:.2f}, {low:.2f} to {high:.2f})"
            if low > 1:
                ahead.append(text)
            else:
                level.append(text)
        if ahead:
            lines.append(f"ahead of the best cells of other algorithms: {', '.join(ahead)}")
        if level:
            lines.append(f"not to be told from: {', '.join(level)}")
        count = sum(self.ratio(best, cell)[1][0] <= 1 for cell in others)
        unresolved = len(self.updates) - len(self.ranking)
        lines.append(
            f"of {len(self.updates)} cells {count} more cannot be told from the best, and "
            f"{unresolved} are below the resolution"
        )
        return lines


def times(ratio: float, ci95: list[float]) -> str:
    low, high = ci95
    return f"{ratio:.2f} ({low:.2f} to {high:.2f}) times the signal a second of"
