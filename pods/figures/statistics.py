"""Comparisons of two methods that hold with few runs: arrays in, numbers out; the unit is a run."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
from scipy.optimize import isotonic_regression
from scipy.special import ndtr, stdtr, stdtrit

FEWEST_FOR_BAND = 3  # runs
SIGNIFICANT = 0.05  # of p values after Holm's correction
LAST = 3  # points whose mean is a run's level; a maximum would grow with the number of points
SPREADS = np.geomspace(0.01, 3, 48)  # standard deviations of log times that the fit tries
BEYOND = 3.0  # natural log: the fit tries times up to 20 times beyond the observed ones


@dataclass(frozen=True)
class Difference:
    """Method minus baseline; ci95 and p, of no difference, are None if a method has one run.
    runs: baseline, method."""

    difference: float
    ci95: list[float] | None
    paired: bool
    runs: list[int]
    p: float | None = None


@dataclass(frozen=True)
class TimeToTarget:
    """Ratio of geometric means, baseline over method: above 1 it is faster. See `time_ratio`."""

    target: float
    ratio: float | None
    ci95: list[float | None] | None  # an open upper end is None
    censored: list[int]  # runs that do not reach the target: baseline, method
    restricted_hours: list[float]  # mean of min(time, end): baseline, method


def t95(df: float | np.ndarray) -> np.ndarray:
    """Half-width of a 95 % interval in standard errors: Student's quantile t(.975, df)."""
    return stdtrit(df, 0.975)


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard error and count over runs, (runs, points) -> (points,) each; NaN is a gap.

    error = sqrt(sum (x - mean)^2 / (n - 1) / n), 0 for one run
    """
    known = np.ma.masked_invalid(values)
    n = known.count(axis=0)
    mean = known.mean(axis=0).filled(np.nan)
    error = np.ma.sqrt(known.var(axis=0, ddof=1) / n).filled(0)
    return mean, error, n


def band(values: np.ndarray, most: float = np.inf) -> tuple[np.ndarray, np.ndarray]:
    """Student's 95 % interval over runs, (runs, points) -> lower and upper ends, (points,) each,
    within 0 and `most`; NaN with fewer than three runs: of two it is 13 standard errors high."""
    mean, error, n = mean_and_error(values)
    half = np.where(n >= FEWEST_FOR_BAND, t95(n - 1) * error, np.nan)
    return np.clip(mean - half, 0, most), np.clip(mean + half, 0, most)


def resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Mean curves of draws with replacement: (runs, points) -> (resamples, points); NaN: a gap."""
    n = len(values)
    share = np.full(n, 1 / n)
    weights = rng.multinomial(n, share, size=resamples).astype(float)
    known = np.isfinite(values).astype(float)
    count = weights @ known
    total = weights @ np.nan_to_num(values)
    return total / np.where(count, count, np.nan)


def time_average(seconds: np.ndarray, values: np.ndarray, base: float, end: float) -> float:
    """(1 / end) * integral over [0, end] of the lines through a run's points, (points,), from the
    base at 0 on; gaps are bridged, and without a base the first value holds before its point."""
    known = np.isfinite(seconds) & np.isfinite(values)
    values = values[known]
    start = base if np.isfinite(base) else values[0]
    x = np.r_[0.0, seconds[known]]
    y = np.r_[start, values]
    corners = np.r_[x[x < end], end]
    heights = np.interp(corners, x, y)
    return np.trapezoid(heights, corners) / end


def level(values: np.ndarray) -> np.ndarray:
    """Mean of the last three values of each run: (runs, points) -> (runs,); gaps do not count."""
    return np.array([run[np.isfinite(run)][-LAST:].mean() for run in values])


def difference(baseline: np.ndarray, method: np.ndarray, paired: bool) -> Difference:
    """Difference of the means of two methods, (runs,) each; paired: by seed (Student), else Welch.

    v_i = var(sample_i) / n_i of each sample: the differences by seed, or both methods
    half-width = t(.975, df) sqrt(sum v_i),  df = (sum v_i)^2 / sum (v_i^2 / (n_i - 1))
    The degrees of freedom are Satterthwaite's; those of one sample are n - 1.
    """
    centre = float(method.mean() - baseline.mean())
    counts = [len(baseline), len(method)]
    if min(counts) < 2:
        return Difference(centre, None, paired, counts)
    samples = [method - baseline] if paired else [method, baseline]
    n = np.array([len(sample) for sample in samples])
    v = np.array([np.var(sample, ddof=1) for sample in samples]) / n
    total = v.sum()
    half = 0.0  # equal runs have an interval of width 0
    p = float(centre == 0)
    if total > 0:
        weights = v**2 / (n - 1)
        df = total**2 / weights.sum()
        half = float(t95(df) * np.sqrt(total))
        p = 2 * float(stdtr(df, -abs(centre) / np.sqrt(total)))
    return Difference(centre, [centre - half, centre + half], paired, counts, p)


def holm(p_values: dict[Any, float]) -> dict[Any, float]:
    """p values adjusted for their number (Holm 1979): of k ascending p values the i-th from 0
    becomes the largest of p_j (k - j), j <= i, and 1."""
    ascending = pandas.Series(p_values, dtype=float).sort_values()
    factors = np.arange(len(ascending), 0, -1)  # k - j
    return (ascending * factors).clip(upper=1).cummax().to_dict()


def first_crossing(
    seconds: np.ndarray, values: np.ndarray, base: float, target: float
) -> tuple[float, float]:
    """(after, by]: the points between which a run's isotonic fit reaches the target; by is infinite
    if it never does. The base takes part in the fit, but reaches nothing itself."""
    known = np.isfinite(seconds) & np.isfinite(values)
    x = np.r_[0.0, seconds[known]]
    y = np.r_[base, values[known]]
    first = 0 if np.isfinite(base) else 1  # of the fit
    fit = isotonic_regression(y[first:]).x
    reached = np.flatnonzero(fit >= target - 1e-12)
    if not reached.size:
        return x[-1], np.inf
    point = max(1, first + reached[0])
    return x[point - 1], x[point]


def time_ratio(
    baseline: np.ndarray, method: np.ndarray, step: float = 0.01
) -> tuple[float | None, list[float | None] | None]:
    """Geometric mean of the baseline's times over that of the method's, and its 95 % interval.

    baseline, method: (runs, 2): a run's time lies in (after, by]. step: resolution of log(ratio).
    None: no run of a method reaches the target.

    The logs of a method's times are normal with a mean of its own (mu, nu) and one spread s:
        log L(mu, nu, s) = sum over runs of log P(after < time <= by)
        ratio = exp(mu - nu) at the highest log L
    The interval holds the ratios whose profile, the highest log L over nu and s at a fixed mu - nu,
    is at most N/2 log(1 + t^2 / (N - 2)) below it, t = t(.975, N - 2): with exact times, Student's
    interval.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate([baseline, method]))
    observed = logs[np.isfinite(logs)]
    means = np.arange(observed.min() - BEYOND, observed.max() + BEYOND, step)
    size = len(means)
    slow = _log_likelihood(logs[: len(baseline)], means)  # (means, spreads)
    fast = _log_likelihood(logs[len(baseline) :], means)
    spread = np.argmax(slow.max(axis=0) + fast.max(axis=0))
    # Where every run of a method lies beyond a point the likelihood has a plateau up to an edge.
    at_best = np.column_stack([slow[:, spread], fast[:, spread]])  # (means, methods)
    highest = at_best.max(axis=0)
    plateaus = at_best > highest - 1e-6
    centres = [np.flatnonzero(plateau).mean() for plateau in plateaus.T]
    shift = round(centres[0] - centres[1])  # log(ratio) in steps
    ratio = None
    if not plateaus[[0, -1]].any():
        ratio = float(np.exp(shift * step))
    if min(len(baseline), len(method)) < 2:
        return ratio, None
    df = len(logs) - 2
    drop = len(logs) / 2 * np.log1p(t95(df) ** 2 / df)
    floor = highest.sum() - drop
    positions = np.arange(-size, 2 * size)  # beyond the table its edges stand for all farther times
    fast_at_positions = fast[np.clip(positions, 0, size - 1)]

    def rejected(shift: int) -> bool:
        slow_at_positions = slow[np.clip(positions + shift, 0, size - 1)]
        profile = slow_at_positions + fast_at_positions
        return profile.max() < floor

    def end(shifts: range) -> float | None:
        first = bisect_left(shifts, True, key=rejected)
        if first == len(shifts):  # none is rejected
            return None
        return float(np.exp(shifts[first - 1] * step))

    lower = end(range(shift, -size - 1, -1))
    upper = end(range(shift, size + 1))
    return ratio, [lower or 0.0, upper]


def time_to_target(
    methods: list[tuple[np.ndarray, np.ndarray]],  # seconds and values, (runs, points)
    base: list[float],
    levels: np.ndarray,
    end: float,
    target: float | None = None,
    fraction: float = 0.99,
) -> TimeToTarget | None:
    """Times to a target of two methods: a fixed one, or this fraction of the baseline's levels,
    (runs,), cross-fitted, so that a run's own noise does not move what it must reach.

    base: of each at time 0, NaN if unknown. end: of the comparison, in seconds. None: a target
    of 0, or one that a base has reached.
    """
    # Runs 0, 2, ... have to reach the level of runs 1, 3, ..., and the other way round.
    halves = [levels[1::2], levels[::2]] if len(levels) > 1 else [levels, levels]
    targets = [target or fraction * half.mean() for half in halves]
    if min(targets) <= np.nanmax([0.0, *base]):
        return None
    times = []
    for (seconds, values), start in zip(methods, base, strict=True):
        runs = zip(seconds, values, targets * len(values), strict=False)
        crossings = [first_crossing(x, y, start, goal) for x, y, goal in runs]
        times.append(np.array(crossings))
    ratio, interval = time_ratio(*times)
    return TimeToTarget(
        target=float(np.mean(targets)),
        ratio=ratio,
        ci95=interval,
        censored=[int(np.isinf(method[:, 1]).sum()) for method in times],
        # the middle of an interval counts
        restricted_hours=[float(np.minimum(t.mean(axis=1), end).mean()) / 3600 for t in times],
    )


def _log_likelihood(logs: np.ndarray, means: np.ndarray) -> np.ndarray:
    """log P(low < time <= high) summed over runs, with logs of times, (runs, 2), of normal times
    with these means and SPREADS: (means, spreads)."""
    after = logs[:, 0, None, None]
    by = logs[:, 1, None, None]
    low = (after - means[:, None]) / SPREADS  # (runs, means, spreads)
    high = (by - means[:, None]) / SPREADS
    # Probabilities of the upper tail would round to 0: the lower one is its mirror image.
    upper_tail = low > 0
    lower = np.where(upper_tail, -high, low)
    upper = np.where(upper_tail, -low, high)
    probability = ndtr(upper) - ndtr(lower)
    with np.errstate(divide="ignore"):
        return np.log(probability).sum(axis=0)
