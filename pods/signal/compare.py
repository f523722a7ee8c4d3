"""How much of an update is signal, and which cells (algorithm and sizes) give most of it a second.

With the mean mu of an update u over steps, and the trace of its covariance E|u|^2 - |mu|^2,

    SNR2 = |mu|^2 / (E|u|^2 - |mu|^2)
    rate = SNR2 / (1 + SNR2) / seconds = |mu|^2 / E|u|^2 / seconds     of a step

Let r be GRPO's update on all that was recorded. What of |mu|^2 lies in its direction is

    |mu|^2 = a^2 |E r|^2,   a = <mean simulated update, r> / <r, r>

All cells share |E r|^2, the signal itself. It comes from pairs of different questions, so that the
noise of no rollout counts: the mean over all ways to split the questions in halves. It may be below
the resolution. Ratios of rates do not hold it, only a^2 / E|u|^2 / seconds, which is known far
better: their intervals come from resampled questions, the same ones for all cells.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pods.signal.simulate import Candidate, Updates

RESAMPLES = 1000
ENDS = (2.5, 97.5)  # percentiles of a 95 % interval
NORMAL = 1.96  # standard deviations of a 95 % interval
BELOW = "below the resolution"


def signal(parts: np.ndarray) -> tuple[float, list[float]]:
    """|E r|^2 with its 95 % interval, from the (Q, size) parts of questions in r.

    A U-statistic of <part, part'> over pairs; its variance is 4 s1 / Q + 2 s2 / Q^2, with s2 that
    of a pair and s1 that of a question's mean over pairs, of which s2 / Q is noise.
    """
    count = len(parts)
    products = count**2 * (parts @ parts.T)
    pairs = products[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    of_pairs = pairs.var()
    of_questions = max(pairs.mean(axis=1).var(ddof=1) - of_pairs / count, 0)
    half = NORMAL * np.sqrt(4 * of_questions / count + 2 * of_pairs / count**2)
    value = float(pairs.mean())
    return value, [value - half, value + half]


def resamples(questions: int) -> np.ndarray:
    """(1 + RESAMPLES, Q) how often each question is taken: once, then in random samples."""
    rng = np.random.default_rng(0)
    shares = np.full(questions, 1 / questions)
    return np.vstack([np.ones(questions, int), rng.multinomial(questions, shares, RESAMPLES)])


def interval(samples: np.ndarray) -> list[float]:
    """95 % of the resamples that have a value; the first sample is the estimate."""
    return np.nanpercentile(samples[1:], ENDS).tolist()


def spanned(value: float, ends: Sequence[float], form: str = ".2f") -> str:
    """A number with its interval: 1.20 (1.01 to 1.60)."""
    low, high = (format(end, form) for end in ends)
    return f"{value:{form}} ({low} to {high})"


class CellRanking:
    """Cells by their rate, and against the reference: GRPO at a run's own sizes.

    whole: (Q, size) the parts of the questions in r.
    """

    def __init__(
        self, updates: dict[Candidate, Updates], whole: np.ndarray, reference: Candidate
    ) -> None:
        self.updates = updates
        self.whole = whole
        self.reference = reference
        self.signal, self.signal_ci95 = signal(whole)
        counts = resamples(len(whole))
        # cell -> (samples,): rate / |E r|^2, and <mean update, r> / <r, r>
        self.rates: dict[Candidate, np.ndarray] = {}
        self.along: dict[Candidate, np.ndarray] = {}
        length = np.einsum("bq,qk,bk->b", counts, whole @ whole.T, counts, optimize=True)
        length[length == 0] = np.inf  # none of the resampled questions has signal: a = 0
        for cell, own in updates.items():
            products = own.mean @ whole.T
            along = ((counts @ products) * counts).sum(axis=1) / length
            total = own.total * (counts @ own.squares) / (own.squares.sum() or 1)
            total[total == 0] = np.inf  # none of the resampled questions moves the cell
            self.along[cell] = along
            self.rates[cell] = along**2 / total / own.seconds

    @property
    def has_signal(self) -> bool:
        """Whether the mean gradient of what was recorded differs from 0 for sure."""
        return self.signal_ci95[0] > 0

    def is_resolved(self, cell: Candidate) -> bool:
        """Whether the cell's mean update lies in the direction of r in 97.5 % of the resamples. So
        does noise, because both hold the same rollouts (docs/planner.md)."""
        return self.along[cell][0] > 0 and interval(self.along[cell])[0] > 0

    @cached_property
    def ranking(self) -> list[Candidate]:
        """The resolved cells, the highest rate first."""
        resolved = filter(self.is_resolved, self.updates)
        return sorted(resolved, key=lambda cell: -self.rates[cell][0])

    @property
    def firsts(self) -> list[Candidate]:
        """The best resolved cell of each algorithm, the highest rate first."""
        by_algorithm: dict[str, Candidate] = {}
        for cell in self.ranking:
            by_algorithm.setdefault(cell.algorithm, cell)
        return [*by_algorithm.values()]

    def ratio(self, cell: Candidate, other: Candidate) -> tuple[float, list[float]]:
        """The rate of a cell over that of another, with its interval; both must be resolved."""
        with np.errstate(all="ignore"):  # a resample of few questions may have none that counts
            samples = self.rates[cell] / self.rates[other]
        return float(samples[0]), interval(samples)

    def cosine(self, cell: Candidate) -> float | None:
        """Of the mean update and r; above 1 by noise, None if noise hides the update's length."""
        one, other = self.updates[cell].halves.sum(axis=1)
        squared = float(one @ other)
        if squared <= 0:
            return None
        r = self.whole.sum(axis=0)
        return float((one + other) @ r / 2 / np.sqrt(squared * (r @ r)))

    def snr2(self, cell: Candidate) -> tuple[float, list[float]]:
        """SNR2 with the interval of the signal itself."""
        factor = self.rates[cell][0] * self.updates[cell].seconds
        shares = factor * np.array([self.signal, *self.signal_ci95])
        value, low, high = (shares / (1 - np.minimum(shares, 0.999))).tolist()
        return value, [low, high]

    def row(self, cell: Candidate) -> dict[str, Any]:
        """The figures of a cell; None below the resolution."""
        snr2, ci95 = self.snr2(cell)
        row = cell._asdict() | {
            "snr2": None,
            "snr2_ci95": ci95,
            "cosine": None,
            "seconds_per_step": self.updates[cell].seconds,
            "rate": None,
            "relative": None,
            "relative_ci95": None,
            "alive": self.updates[cell].alive,
        }
        if not self.is_resolved(cell):
            return row
        row["cosine"] = self.cosine(cell)
        if self.has_signal:
            row |= {"snr2": snr2, "rate": float(self.rates[cell][0] * self.signal)}
        if self.is_resolved(self.reference):
            row["relative"], row["relative_ci95"] = self.ratio(cell, self.reference)
        return row

    def verdict(self) -> list[str]:
        """How sure the signal is, the best cell, what it is ahead of and what it cannot be told
        from."""
        if not self.is_resolved(self.reference):
            return [f"{BELOW}: {self.reference} has no signal; set more questions and rollouts"]
        snr2 = spanned(*self.snr2(self.reference), ".2g")
        lines = [f"SNR2 of a step of {self.reference}: {snr2}"]
        if not self.has_signal:
            lines = [
                f"SNR2 is {BELOW}: the mean gradient of what was recorded cannot be told from 0. "
                "The order supposes that there is a signal; to see it, set more questions"
            ]
        best, *others = self.ranking
        ratio = spanned(*self.ratio(best, self.reference))
        lines.append(f"best: {best}, {ratio} times the signal a second of {self.reference}")
        ahead: list[str] = []
        level: list[str] = []
        for cell in self.firsts[1:]:
            ratio, ends = self.ratio(best, cell)
            (ahead if ends[0] > 1 else level).append(f"{cell}: {spanned(ratio, ends)}")
        if ahead:
            lines.append(f"ahead of the best cells of other algorithms: {', '.join(ahead)}")
        if level:
            lines.append(f"not to be told from: {', '.join(level)}")
        count = sum(self.ratio(best, cell)[1][0] <= 1 for cell in others)
        unresolved = len(self.updates) - len(self.ranking)
        lines.append(
            f"of {len(self.updates)} cells {count} more cannot be told from the best, and "
            f"{unresolved} are {BELOW}"
        )
        return lines
