"""The speed-up of one arm over another, with a bootstrap interval over runs.

T = fraction (0.99) of the best point of the baseline's mean curve; the speed-up is the baseline's
first time at or above T over the other arm's. The paper states the ratio alone. The interval is
wide: 1.0 to 2.7 for a ratio of 2.0 with ten runs and half-hour marks.
    uv run scripts/speedup.py figure=gsm8k_main
"""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pods.figures.curves import Series, statistics
from pods.figures.definition import Figure


@dataclass
class Speedup:
    """One arm against a baseline. None: the time is never reached, or one run has no interval."""

    baseline: str
    pods: str
    n_runs: list[int]  # baseline, pods
    fraction_of_best: float
    baseline_still_rising: bool  # its best mark is its last one
    threshold: float
    baseline_hours: float | None = None  # None: the baseline never scored above 0
    pods_hours: float | None = None
    speedup: float | None = None
    ci95: list[float] | None = None
    probability_faster: float | None = None  # share of resamples with a ratio above 1
    speedup_interpolated: float | None = None
    ci95_interpolated: list[float] | None = None
    final_difference: float | None = None  # accuracy, pods minus baseline, at the last common mark
    final_difference_ci95: list[float] | None = None
    final_hours: float | None = None


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
) -> tuple[np.ndarray, np.ndarray]:
    """Hours at which each mean curve, (curves, marks), first reaches its threshold, (curves,).

    Returns the grid mark, and the time on the straight line from the mark before (or from the base
    at time 0); infinite where never.
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
    line = np.where(np.isfinite(before), line, times[hit + 1])  # no line without a value before
    if base is not None:
        line = np.where(base >= thresholds, times[hit + 1], line)  # only t > 0 counts
    return np.where(never, np.inf, hours[hit]), np.where(never, np.inf, line)


def compare(baseline: Series, pods: Series, fraction: float, resamples: int, seed: int) -> Speedup:
    """Speed-up of `pods` over `baseline` and difference of final accuracy, with 95 % intervals."""
    rng = np.random.default_rng(seed)
    values = [baseline.quantities["value"], pods.quantities["value"]]
    # row 0 is the measured pair, the others are its bootstrap resamples
    means = [np.vstack([statistics(v)[0], resampled_means(v, resamples, rng)]) for v in values]
    thresholds = fraction * np.nanmax(means[0], axis=1)
    (slow_marks, slow), (fast_marks, fast) = (
        reach(curves, thresholds, arm.hours, arm.base.get("value"))
        for curves, arm in zip(means, (baseline, pods), strict=True)
    )
    marks, line = slow_marks / fast_marks, slow / fast  # 0 where pods never reaches the threshold
    last, n_runs = np.flatnonzero(np.isfinite(means[0][0]))[-1], [len(v) for v in values]
    rising, threshold = bool(np.nanargmax(means[0][0]) == last), float(thresholds[0])
    found = Speedup(baseline.label, pods.label, n_runs, fraction, rising, threshold)
    several = min(n_runs) > 1  # resamples of one run are all the same run
    if threshold > 0:
        found.baseline_hours = float(slow_marks[0])
        if np.isfinite(fast_marks[0]):
            found.pods_hours = float(fast_marks[0])
            found.speedup, found.speedup_interpolated = float(marks[0]), float(line[0])
        if several:
            found.ci95, found.ci95_interpolated = _interval(marks[1:]), _interval(line[1:])
            found.probability_faster = float(np.mean(marks[1:] > 1))
    both = np.flatnonzero(np.isfinite(means[0][0]) & np.isfinite(means[1][0]))
    if both.size:
        difference = means[1][:, both[-1]] - means[0][:, both[-1]]
        found.final_difference = float(difference[0])
        found.final_difference_ci95 = _interval(difference[1:]) if several else None
        found.final_hours = float(baseline.hours[both[-1]])
    return found


def pairs(series: list[Series], *how: float) -> list[Speedup]:
    """Every pair of arms; the earlier one in the figure's YAML is the baseline; how: of compare."""
    return [compare(first, second, *how) for first, second in combinations(series, 2)]


def headline(figure: Figure, series: list[Series], *how: float) -> Speedup | None:
    """The pair that the figure's YAML names as baseline and pods; None without both."""
    arms = {arm.label: arm for arm in series}
    if figure.baseline not in arms or figure.pods not in arms:
        return None
    return compare(arms[figure.baseline], arms[figure.pods], *how)


def _interval(values: np.ndarray) -> list[float] | None:
    values = values[np.isfinite(values)]
    return np.percentile(values, [2.5, 97.5]).tolist() if values.size else None
