"""How much sooner one arm reaches what another arm achieves at best, and how sure that is.

T = fraction (0.99) of the best point of the baseline's mean curve; the speed-up is the baseline's
first time at or above T over the other arm's. The paper states the ratio alone; the interval comes
from resampling the runs of both arms and is wide: ten runs, half-hour marks: 1.0 to 2.7 for 2.0.
Arrays in, numbers out.
    uv run scripts/speedup.py figure=gsm8k_main
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

from pods.figures.curves import Series
from pods.figures.definition import Figure


@dataclass
class Speedup:
    """One arm against a baseline. None: a time never reached, an interval without a basis."""

    baseline: str
    pods: str
    n_runs: list[int]  # baseline, pods
    fraction_of_best: float
    baseline_still_rising: bool  # its best mark is its last: best within the budget, no plateau
    threshold: float
    baseline_hours: float | None  # None: it never scored above 0, so there is nothing to reach
    pods_hours: float | None
    speedup: float | None
    ci95: list[float] | None
    probability_faster: float | None  # share of resamples with a ratio above 1
    speedup_interpolated: float | None
    ci95_interpolated: list[float] | None
    final_difference: float | None  # accuracy, pods minus baseline, at the last mark both reach
    final_difference_ci95: list[float] | None
    final_hours: float | None


@dataclass
class Times:
    """First times at or above the threshold for a stack of mean curves; infinite where never."""

    grid: np.ndarray
    interpolated: np.ndarray


def resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Mean curves of draws of the runs with replacement: (runs, marks) -> (resamples, marks).

    Gaps (NaN) do not count; a mark at which no drawn run has a value is NaN.
    """
    n = len(values)
    weights = rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(float)
    there = np.isfinite(values).astype(float)
    count = weights @ there
    return weights @ np.nan_to_num(values) / np.where(count, count, np.nan)


def reach(
    means: np.ndarray, thresholds: np.ndarray, hours: np.ndarray, base: float | None
) -> Times:
    """When each mean curve, (curves, marks), is first at its threshold, (curves,).

    On the grid, and on the straight line from the mark before (or the base at time 0).
    """
    at = np.nan_to_num(means, nan=-np.inf) >= thresholds[:, None]
    hit, row = at.argmax(axis=1), np.arange(len(means))
    never = ~at.any(axis=1)
    start = np.full((len(means), 1), math.nan if base is None else base)
    values = np.hstack([start, means])
    before, after = values[row, hit], values[row, hit + 1]
    times = np.concatenate([[0.0], hours])
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.clip((thresholds - before) / (after - before), 0, 1)
    line = times[hit] + part * (times[hit + 1] - times[hit])
    line = np.where(np.isfinite(before), line, times[hit + 1])  # nothing to draw a line from
    if base is not None:
        line = np.where(base >= thresholds, times[hit + 1], line)  # never at time 0: t > 0 counts
    return Times(np.where(never, np.inf, hours[hit]), np.where(never, np.inf, line))


def compare(baseline: Series, pods: Series, fraction: float, resamples: int, seed: int) -> Speedup:
    """Speed-up of `pods` over `baseline` and difference of final accuracy, with 95 % intervals."""
    rng = np.random.default_rng(seed)
    values = [baseline.quantities["value"], pods.quantities["value"]]
    # row 0 is the measured pair, the others are its bootstrap resamples
    means = [np.vstack([mean_curve(v), resampled_means(v, resamples, rng)]) for v in values]
    thresholds = fraction * np.nanmax(means[0], axis=1)
    times = [
        reach(m, thresholds, arm.hours, arm.base.get("value"))
        for m, arm in zip(means, (baseline, pods), strict=True)
    ]
    grid = times[0].grid / times[1].grid  # 0 where pods never gets there
    line = times[0].interpolated / times[1].interpolated
    both = np.flatnonzero(np.isfinite(means[0][0]) & np.isfinite(means[1][0]))
    final = means[1][:, both[-1]] - means[0][:, both[-1]] if both.size else np.array([])
    ends = [np.flatnonzero(np.isfinite(m[0]))[-1] for m in means]  # last mark of each arm
    scored = bool(thresholds[0] > 0)
    several = min(len(v) for v in values) > 1  # one run resampled is the same run again
    sure = scored and several
    reached = scored and bool(np.isfinite(times[1].grid[0]))
    return Speedup(
        baseline=baseline.label,
        pods=pods.label,
        n_runs=[len(v) for v in values],
        fraction_of_best=fraction,
        baseline_still_rising=bool(np.nanargmax(means[0][0]) == ends[0]),
        threshold=float(thresholds[0]),
        baseline_hours=float(times[0].grid[0]) if scored else None,
        pods_hours=float(times[1].grid[0]) if reached else None,
        speedup=float(grid[0]) if reached else None,
        ci95=_interval(grid[1:]) if sure else None,
        probability_faster=float(np.mean(grid[1:] > 1)) if sure else None,
        speedup_interpolated=float(line[0]) if reached else None,
        ci95_interpolated=_interval(line[1:]) if sure else None,
        final_difference=float(final[0]) if both.size else None,
        final_difference_ci95=_interval(final[1:]) if several and both.size else None,
        final_hours=float(baseline.hours[both[-1]]) if both.size else None,
    )


def mean_curve(values: np.ndarray) -> np.ndarray:
    """The mean curve itself, (1, marks), gaps not counted."""
    there = np.isfinite(values)
    count = there.sum(axis=0)
    return (np.where(there, values, 0).sum(axis=0) / np.where(count, count, np.nan))[None]


def pairs(series: list[Series], fraction: float, resamples: int, seed: int) -> list[Speedup]:
    """Every pair of arms; the one that stands first in the figure's YAML is the baseline."""
    return [
        compare(first, second, fraction, resamples, seed)
        for i, first in enumerate(series)
        for second in series[i + 1 :]
    ]


def to_json(headline: Speedup | None, every: list[Speedup]) -> dict | None:
    """The headline pair's numbers with all pairs below; None without a headline pair."""
    return None if headline is None else asdict(headline) | {"pairs": [asdict(p) for p in every]}


def _interval(values: np.ndarray) -> list[float] | None:
    values = values[np.isfinite(values)]
    return np.percentile(values, [2.5, 97.5]).tolist() if values.size else None


def headline(
    figure: Figure, series: list[Series], fraction: float, resamples: int, seed: int
) -> Speedup | None:
    """The pair that the figure's YAML names as baseline and pods; None without both."""
    arms = {arm.label: arm for arm in series}
    if figure.baseline not in arms or figure.pods not in arms:
        return None
    return compare(arms[figure.baseline], arms[figure.pods], fraction, resamples, seed)
