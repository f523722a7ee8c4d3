"""One arm against another: our comparison, and the published speed-up beside it.

Ours (pods/figures/statistics.py): accuracy averaged over time, level at the end, time to a target.
Published: T = fraction (0.99) of the best point of the baseline's mean curve; the speed-up is the
baseline's first mark at or above T over the other arm's. The paper states the ratio alone; its
bootstrap interval over runs is too narrow below ten runs.
    uv run scripts/speedup.py figure=gsm8k_main
"""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from pods.figures.curves import Series, statistics
from pods.figures.figure import Comparison, Figure
from pods.figures.statistics import (
    Difference,
    difference,
    first_crossing,
    level,
    restricted_mean,
    time_average,
    time_ratio,
)

FEWEST_FOR_BOOTSTRAP = 10  # runs: with 3 a 95 % bootstrap interval covers 80 %, with 10 92 %


@dataclass(frozen=True)
class TimeToTarget:
    """Ratio of geometric means, baseline over arm: above 1 the arm is faster. See `time_ratio`."""

    target: float
    ratio: float | None
    ci95: list[float | None] | None  # an open upper end is None
    censored: list[int]  # runs that do not reach the target: baseline, arm
    restricted_hours: list[float]  # mean of min(time, end): baseline, arm


@dataclass(frozen=True)
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
    probability_faster: float | None = None  # share of resamples with a ratio above 1, ties half
    compared_hours: float | None = None  # end of what follows: the last mark that all runs have
    mean_accuracy: Difference | None = None  # over [0, compared_hours]
    level: Difference | None = None  # mean of the last three marks
    time_to_target: TimeToTarget | None = None
    time: str = "measured"  # or priced: <price list>


def published_interval(pair: Speedup) -> list[float] | None:
    """The bootstrap interval where it can be trusted: from ten runs of each arm on."""
    return pair.ci95 if min(pair.n_runs) >= FEWEST_FOR_BOOTSTRAP else None


def resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Mean curves of draws of the runs with replacement: (runs, marks) -> (resamples, marks).

    Gaps (NaN) do not count; a mark at which no drawn run has a value is NaN.
    """
    n = len(values)
    weights = rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(float)
    there = np.isfinite(values).astype(float)
    count = weights @ there
    return weights @ np.nan_to_num(values) / np.where(count, count, np.nan)


def compare(baseline: Series, pods: Series, how: Comparison) -> Speedup:
    """`pods` against `baseline`: the published speed-up, and our comparison."""
    return Speedup(
        baseline=baseline.label,
        pods=pods.label,
        n_runs=[len(baseline.runs), len(pods.runs)],
        fraction_of_best=how.fraction_of_best,
        time=baseline.clock if baseline.clock == "measured" else f"priced: {baseline.clock}",
        **_published(baseline, pods, how),
        **_ours(baseline, pods, how),
    )


def _ours(baseline: Series, pods: Series, how: Comparison) -> dict[str, Any]:
    """Accuracy over time, level and time to a target, up to the last mark that every run has."""
    arms = [(arm.quantities["seconds"], arm.quantities["value"]) for arm in (baseline, pods)]
    last = min(int(np.flatnonzero(np.isfinite(run))[-1]) for _, values in arms for run in values)
    arms = [(seconds[:, : last + 1], values[:, : last + 1]) for seconds, values in arms]
    if not all(np.isfinite(values).any(axis=1).all() for _, values in arms):
        return {}  # two runs have no time in common
    ends = [float(np.nanmax(seconds, axis=1).min()) for seconds, _ in arms]
    end = min(*ends, 3600 * float(baseline.hours[last]))
    paired = baseline.seeds == pods.seeds and len({*pods.seeds} - {None}) == len(pods.runs)
    base = [arm.base.get("value", math.nan) for arm in (baseline, pods)]
    averages, levels = [], [level(values) for _, values in arms]
    for (seconds, values), start in zip(arms, base, strict=True):
        runs = zip(seconds, values, strict=True)
        averages.append(np.array([time_average(x, y, start, end) for x, y in runs]))
    return {
        "compared_hours": end / 3600,
        "mean_accuracy": difference(*averages, paired),
        "level": difference(*levels, paired),
        "time_to_target": _time_to_target(arms, base, levels[0], end, how),
    }


def _published(baseline: Series, pods: Series, how: Comparison) -> dict[str, Any]:
    """The published definition with a percentile bootstrap over runs."""
    rng = np.random.default_rng(how.seed)
    values = [baseline.quantities["value"], pods.quantities["value"]]
    # row 0 is the measured pair, the others are its bootstrap resamples
    means = [np.vstack([statistics(v)[0], resampled_means(v, how.resamples, rng)]) for v in values]
    thresholds = how.fraction_of_best * np.nanmax(means[0], axis=1)
    at = [np.nan_to_num(curves, nan=-np.inf) >= thresholds[:, None] for curves in means]
    slow, fast = (np.where(x.any(axis=1), baseline.hours[x.argmax(axis=1)], np.inf) for x in at)
    last = np.flatnonzero(np.isfinite(means[0][0]))[-1]
    rising = bool(np.nanargmax(means[0][0]) == last)
    numbers = {"baseline_still_rising": rising, "threshold": float(thresholds[0])}
    if not thresholds[0] > 0:
        return numbers
    ratios = slow / fast  # 0 where pods never reaches the threshold
    numbers["baseline_hours"] = float(slow[0])
    if np.isfinite(fast[0]):
        numbers |= {"pods_hours": float(fast[0]), "speedup": float(ratios[0])}
    if min(map(len, values)) > 1:  # resamples of one run are all the same run
        ties = np.mean(ratios[1:] == 1) / 2
        numbers["ci95"] = np.percentile(ratios[1:], [2.5, 97.5]).tolist()
        numbers["probability_faster"] = float(np.mean(ratios[1:] > 1) + ties)
    return numbers


def pairs(figure: Figure, series: list[Series], how: Comparison) -> list[Speedup]:
    """Every pair of arms; the figure's baseline, else the earlier one in its YAML, comes first."""
    arms = sorted(series, key=lambda arm: arm.label != figure.baseline)
    return [compare(first, second, how) for first, second in combinations(arms, 2)]


def headline(figure: Figure, pairs: list[Speedup]) -> Speedup | None:
    """The pair that the figure's YAML names as baseline and pods; None without both."""
    named = (figure.baseline, figure.pods)
    return next((pair for pair in pairs if (pair.baseline, pair.pods) == named), None)


def _time_to_target(
    arms: list[tuple[np.ndarray, np.ndarray]],
    base: list[float],
    levels: np.ndarray,
    end: float,
    how: Comparison,
) -> TimeToTarget | None:
    """The target is fixed (how.target), or for every second run a fraction of the mean level of
    the baseline's other runs: a run's own noise does not move the target that it has to reach."""
    halves = [levels[1::2], levels[::2]] if len(levels) > 1 else [levels, levels]
    targets = [how.target or how.fraction_of_best * float(half.mean()) for half in halves]
    if min(targets) <= 0:
        return None
    times = []
    for (seconds, values), start in zip(arms, base, strict=True):
        runs = enumerate(zip(seconds, values, strict=True))
        times.append(np.array([first_crossing(x, y, start, targets[i % 2]) for i, (x, y) in runs]))
    ratio, interval = time_ratio(*times)
    return TimeToTarget(
        target=float(np.mean(targets)),
        ratio=ratio,
        ci95=interval,
        censored=[int(np.isinf(arm[:, 1]).sum()) for arm in times],
        restricted_hours=[restricted_mean(arm, end) / 3600 for arm in times],
    )
