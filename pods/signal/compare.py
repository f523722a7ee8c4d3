"""Which cells (algorithm and sizes) give most signal a second.

With the mean mu of an update u over steps, along the gradient a step of the best length gains in
proportion to |mu|^2 / E|u|^2, so that

    rate = |mu|^2 / E|u|^2 / seconds     of a step

Let r be GRPO's update on all that was recorded. What of |mu|^2 lies in its direction is

    |mu|^2 = a^2 |E r|^2,   a = <mean simulated update, r> / <r, r>

All cells share |E r|^2, the signal itself. It comes from pairs of different questions, so that the
noise of no rollout counts. Ratios of rates do not hold it, only a^2 / E|u|^2 / seconds; their
intervals come from resampled questions, the same ones for all cells: they show how far the ratio
spreads over questions, not how far it is from the truth (docs/planner.md).
"""

from typing import Any

import numpy as np

from pods.signal.simulate import Candidate, Updates

RESAMPLES = 1000
ENDS = (2.5, 97.5)  # percentiles of a 95 % interval
NORMAL = 1.96  # standard deviations of a 95 % interval


def signal(parts: np.ndarray) -> tuple[float, float]:
    """|E r|^2 and the lower end of its 95 % interval, from the (Q, size) parts of questions in r.

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
    return value, float(value - half)


def interval(samples: np.ndarray) -> list[float]:
    """95 % of the resamples that have a value; the first sample is the estimate."""
    return np.nanpercentile(samples[1:], ENDS).tolist()


class CellRanking:
    """Cells by their rate, and against the reference: GRPO at a run's own sizes.

    whole: (Q, size) the parts of the questions in r.
    """

    def __init__(
        self, updates: dict[Candidate, Updates], whole: np.ndarray, reference: Candidate
    ) -> None:
        self.updates = updates
        self.reference = reference
        self.signal, low = signal(whole)
        # (samples,) rate / |E r|^2 of each cell whose mean update lies in the direction of r in
        # 97.5 % of the resamples. So may noise, because both hold the same rollouts.
        self.rates: dict[Candidate, np.ndarray] = {}
        # (samples, Q) how often each question is taken: once, then in random samples.
        questions = len(whole)
        shares = np.full(questions, 1 / questions)
        random = np.random.default_rng(0).multinomial(questions, shares, RESAMPLES)
        counts = np.vstack([np.ones(questions, int), random])
        length = np.einsum("bq,qk,bk->b", counts, whole @ whole.T, counts, optimize=True)
        length[length == 0] = np.inf  # none of the resampled questions has signal: a = 0
        for cell, own in updates.items():
            along = ((counts @ (own.mean @ whole.T)) * counts).sum(axis=1) / length
            total = own.total * (counts @ own.squares) / (own.squares.sum() or 1)
            total[total == 0] = np.inf  # none of the resampled questions moves the cell
            if along[0] > 0 and interval(along)[0] > 0:
                self.rates[cell] = along**2 / total / own.seconds
        self.ranking = sorted(self.rates, key=lambda cell: -self.rates[cell][0])
        # Whether the mean gradient of what was recorded differs from 0; if not, an order is all.
        self.has_signal = low > 0 and reference in self.rates

    def ratio(self, cell: Candidate, other: Candidate) -> tuple[float, list[float]]:
        """The rate of a cell over that of another, with its interval; both must have rates."""
        with np.errstate(all="ignore"):  # a resample of few questions may have none that counts
            samples = self.rates[cell] / self.rates[other]
        return float(samples[0]), interval(samples)

    def row(self, cell: Candidate) -> dict[str, Any]:
        """The figures of a cell; None where it has none."""
        own = self.updates[cell]
        row = cell._asdict() | {
            "seconds_per_step": own.seconds,
            "groups_with_signal": own.with_signal,
            "rate": None,
            "relative": None,
            "relative_ci95": None,
        }
        if cell in self.rates and self.has_signal:
            row["rate"] = float(self.rates[cell][0] * self.signal)
        if cell in self.rates and self.reference in self.rates:
            row["relative"], row["relative_ci95"] = self.ratio(cell, self.reference)
        return row

    def verdict(self) -> list[str]:
        """The best cell and how many are not behind it; without signal that there is only an
        order."""
        if not self.has_signal:
            return [
                "order only: the mean gradient of what was recorded cannot be told from 0; "
                "set more questions and rollouts"
            ]
        best, *others = self.ranking
        value, (low, high) = self.ratio(best, self.reference)
        level = sum(self.ratio(best, cell)[1][0] <= 1 for cell in others)
        return [
            f"best: {best}, {value:.2f} ({low:.2f} to {high:.2f}) times the signal a second of "
            f"{self.reference}",
            f"of {len(self.updates)} cells {level} cannot be told from it, and "
            f"{len(self.updates) - len(self.rates)} have no rate",
            "intervals: spread over questions, not error (docs/planner.md)",
        ]
