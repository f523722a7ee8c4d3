"""One method against another: our comparison, and the published speed-up beside it.

Published: T = fraction (0.99) of the best point of the baseline's mean curve; the speed-up is the
baseline's first evaluation at or above T over the other method's, with a bootstrap interval.
"""

import math
from dataclasses import dataclass
from itertools import combinations
from textwrap import fill
from typing import Any

import numpy as np
import pandas

from pods.figures import statistics
from pods.figures.figure import Comparison, Figure, Series
from pods.figures.statistics import Difference, TimeToTarget
from pods.figures.tables import duration, points, times

WIDTH = 100  # characters of a line of a note
FEWEST_FOR_BOOTSTRAP = 10  # runs: with 3 a 95 % interval of a difference covers 80 %, with 10 92
ACCURACY_NOTE = (
    "Points are method minus baseline. [ ]: 95% interval over runs (Student; paired: by seed)."
    " Level: mean of the last three evaluations, of fewer where a run has fewer."
)
TIME_NOTE = (
    "Times as fast: ratio of geometric mean times to the target; a bound: all runs of a method are"
    " short of it, or beyond it at their first evaluation. Capped: a run short of the target counts"
    " with the whole time. -: the base has reached the target. [ ]: 95% profile-likelihood interval"
    " over runs."
)
PUBLISHED_NOTE = (
    "First time at which the mean curve reaches a share of the baseline's best accuracy. [ ]: 95%"
    " bootstrap interval over runs, from ten runs on."
)


@dataclass(frozen=True)
class Speedup:
    """A method against a baseline. None: the time is never reached, or one run has no interval."""

    baseline: str
    pods: str
    n_runs: list[int]  # baseline, pods
    fraction_of_best: float
    baseline_still_rising: bool  # its best accuracy is its last one
    threshold: float
    baseline_hours: float | None = None  # None: the baseline never scored above 0
    pods_hours: float | None = None
    speedup: float | None = None
    ci95: list[float] | None = None
    compared_hours: float | None = None  # end of the means below: the last point that all runs have
    mean_accuracy: Difference | None = None  # over [0, compared_hours]
    level: Difference | None = None  # mean of the last three evaluations
    time_to_target: TimeToTarget | None = None
    clock: str = "measured"  # or the price list of the seconds
    where: str = ""  # the questions with a value of a column, level=3; "": all


def pairs(figure: Figure, series: list[Series], how: Comparison) -> list[Speedup]:
    """Every pair of methods; the figure's baseline, else the earlier one in its YAML, is first."""
    methods = sorted(series, key=lambda method: method.label != figure.baseline)
    return [compare(first, second, how) for first, second in combinations(methods, 2)]


def compare(baseline: Series, pods: Series, how: Comparison) -> Speedup:
    """`pods` against `baseline`: the published speed-up, and our comparison."""
    return Speedup(
        baseline=baseline.label,
        pods=pods.label,
        n_runs=[len(baseline.runs), len(pods.runs)],
        fraction_of_best=how.fraction_of_best,
        clock=baseline.clock,
        **_published(baseline, pods, how),
        **_ours(baseline, pods, how),
    )


def _published(baseline: Series, pods: Series, how: Comparison) -> dict[str, Any]:
    """The published definition with a percentile bootstrap over runs."""
    rng = np.random.default_rng(how.seed)
    # (1 + resamples, points): row 0 is the measured curve, the others are its resamples
    baseline_means = _with_resamples(baseline, how.resamples, rng)
    pods_means = _with_resamples(pods, how.resamples, rng)
    thresholds = how.fraction_of_best * np.fmax.reduce(baseline_means, axis=1)
    measured = baseline_means[0][np.isfinite(baseline_means[0])]
    numbers = {
        "baseline_still_rising": bool(np.argmax(measured) == len(measured) - 1),
        "threshold": float(thresholds[0]),
    }
    if not thresholds[0] > 0:
        return numbers
    slow = _first_hours(baseline_means, thresholds, baseline.hours)
    fast = _first_hours(pods_means, thresholds, baseline.hours)
    known = np.isfinite(slow)  # a resample may have no point that all runs have
    ratios = slow[known] / fast[known]  # 0 if pods never reaches the threshold
    numbers["baseline_hours"] = float(slow[0])
    if np.isfinite(fast[0]):
        numbers["pods_hours"] = float(fast[0])
        numbers["speedup"] = float(ratios[0])
    if min(len(baseline.runs), len(pods.runs)) > 1:  # resamples of one run are all the same run
        numbers["ci95"] = np.percentile(ratios[1:], [2.5, 97.5]).tolist()
    return numbers


def _with_resamples(method: Series, resamples: int, rng: np.random.Generator) -> np.ndarray:
    values = method.of_all_runs("value")
    mean, _, _ = statistics.mean_and_error(values)
    return np.vstack([mean, statistics.resampled_means(values, resamples, rng)])


def _first_hours(means: np.ndarray, thresholds: np.ndarray, hours: np.ndarray) -> np.ndarray:
    """Hours of the first point of each curve at or above its threshold, infinite without one."""
    reached = np.nan_to_num(means, nan=-np.inf) >= thresholds[:, None]
    return np.where(reached.any(axis=1), hours[reached.argmax(axis=1)], np.inf)


def _ours(baseline: Series, pods: Series, how: Comparison) -> dict[str, Any]:
    """Accuracy over time, level and time to a target, up to the last point that every run has."""
    last = min(baseline.last, pods.last)
    methods = [
        (method.quantities["seconds"][:, : last + 1], method.quantities["value"][:, : last + 1])
        for method in (baseline, pods)
    ]
    if not all(np.isfinite(values).any(axis=1).all() for _, values in methods):
        return {}  # two runs have no time in common
    last_seconds = [np.nanmax(seconds, axis=1).min() for seconds, _ in methods]
    end = float(min(*last_seconds, 3600 * baseline.hours[last]))
    base = [method.base.get("value", math.nan) for method in (baseline, pods)]
    averages = []
    for method, start in zip(methods, base, strict=True):
        runs = zip(*method, strict=True)
        averages.append(np.array([statistics.time_average(*run, start, end) for run in runs]))
    levels = [statistics.level(values) for _, values in methods]
    paired = baseline.seeds == pods.seeds and len({*pods.seeds} - {None}) == len(pods.runs)
    return {
        "compared_hours": end / 3600,
        "mean_accuracy": statistics.difference(*averages, paired),
        "level": statistics.difference(*levels, paired),
        "time_to_target": statistics.time_to_target(
            methods, base, levels[0], end, how.target, how.fraction_of_best
        ),
    }


def text(pairs: list[tuple[str, Speedup]]) -> str:
    """The tables, a row for each pair; pairs: figure name, comparison."""
    parts = []
    for title, note, row in TABLES:
        table = pandas.DataFrame([row(name, pair) for name, pair in pairs])
        parts += [title, table.to_string(index=False), fill(note, WIDTH)]
    return "\n\n".join(parts)


def accuracy_row(figure: str, pair: Speedup) -> dict[str, str]:
    """Accuracy over time and level; the keys are the column names."""
    runs = f"{pair.n_runs[1]} vs {pair.n_runs[0]}"
    if pair.level is not None and pair.level.paired:
        runs += ", paired"
    return _names(figure, pair) | {
        "runs": runs,
        "over": "-" if pair.level is None else duration(pair.compared_hours),
        "mean accuracy, points": points(pair.mean_accuracy),
        "level, points": points(pair.level),
    }


def time_row(figure: str, pair: Speedup) -> dict[str, str]:
    """The time to a target."""
    goal = pair.time_to_target
    if goal is None:
        heads = ("target", "times as fast", "mean time, capped", "runs short of it")
        return _names(figure, pair) | dict.fromkeys(heads, "-")
    baseline, pods = map(duration, goal.restricted_hours)
    return _names(figure, pair) | {
        "target": f"{goal.target:.1%}",
        "times as fast": times(goal.ratio, goal.ci95, "a bound"),
        "mean time, capped": f"{pods} vs {baseline}",
        "runs short of it": f"{goal.censored[1]} vs {goal.censored[0]}",
    }


def published_row(figure: str, pair: Speedup) -> dict[str, str]:
    """The published speed-up; its interval from ten runs of each method on."""
    interval = pair.ci95 if min(pair.n_runs) >= FEWEST_FOR_BOOTSTRAP else None
    rising = ", still rising" if pair.baseline_still_rising else ""
    return {
        **_names(figure, pair),
        "threshold": f"{pair.threshold:.2%} ({pair.fraction_of_best:.4g} of best{rising})",
        "time": f"{duration(pair.pods_hours)} vs {duration(pair.baseline_hours)}",
        "speed-up": times(pair.speedup, interval) if pair.baseline_hours else "-",
    }


TABLES = (  # title, note, row of a pair
    ("Accuracy", ACCURACY_NOTE, accuracy_row),
    ("Time to a target", TIME_NOTE, time_row),
    ("Published definition", PUBLISHED_NOTE, published_row),
)


def _names(figure: str, pair: Speedup) -> dict[str, str]:
    """The columns that both tables begin with."""
    clock = "" if pair.clock == "measured" else f", time priced: {pair.clock}"
    return {"figure": figure + clock, "method vs baseline": f"{pair.pods} vs {pair.baseline}"}
