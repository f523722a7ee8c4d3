"""Comparisons of two arms that hold with few runs. Arrays in, numbers out; the unit is the run."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtr, stdtrit

LAST = 3  # marks whose mean is a run's level; a maximum would grow with the number of marks
SPREADS = np.geomspace(0.01, 3, 48)  # standard deviations of log times that the fit tries
BEYOND = 3.0  # natural log: the fit tries times up to 20 times beyond the observed ones


@dataclass(frozen=True)
class Difference:
    """Arm minus baseline; ci95 is None if an arm has one run. runs: baseline, arm."""

    difference: float
    ci95: list[float] | None
    paired: bool
    runs: list[int]


def t95(df: float | np.ndarray) -> np.ndarray:
    """Half-width of a 95 % interval in standard errors: Student's quantile."""
    return stdtrit(df, 0.975)


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard error (ddof 1; 0 for one run) and count over runs; gaps do not count."""
    known = np.isfinite(values)
    n = known.sum(axis=0)
    mean = np.where(known, values, 0).sum(axis=0) / np.where(n, n, np.nan)
    squares = np.where(known, (values - mean) ** 2, 0).sum(axis=0)
    return mean, np.sqrt(squares / np.maximum(n - 1, 1) / np.maximum(n, 1)), n


def resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Mean curves of draws with replacement, (runs, marks) -> (resamples, marks); NaN is a gap."""
    n = len(values)
    weights = rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(float)
    count = weights @ np.isfinite(values).astype(float)
    return weights @ np.nan_to_num(values) / np.where(count, count, np.nan)


def seconds_a_step(steps: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Of a run's marks, (marks,) each: of the whole run, of its first and of its last third."""
    known = np.isfinite(steps) & np.isfinite(seconds)
    x, y = np.r_[0.0, steps[known]], np.r_[0.0, seconds[known]]
    third = np.diff(np.interp(x[-1] * np.arange(4) / 3, x, y))
    return np.array([third.mean(), third[0], third[2]]) / (x[-1] / 3)


def time_average(seconds: np.ndarray, values: np.ndarray, base: float, end: float) -> float:
    """Mean over [0, end] of the lines through a run's marks, gaps bridged, from the base at 0."""
    known = np.isfinite(seconds) & np.isfinite(values)
    x, y = np.r_[0.0, seconds[known]], values[known]
    y = np.r_[base if np.isfinite(base) else y[0], y]
    at = np.r_[x[x < end], end]
    return float(np.trapezoid(np.interp(at, x, y), at) / end)


def level(values: np.ndarray) -> np.ndarray:
    """Mean of the last three values of each run: (runs, marks) -> (runs,); gaps do not count."""
    return np.array([np.mean(run[np.isfinite(run)][-LAST:]) for run in values])


def difference(baseline: np.ndarray, arm: np.ndarray, paired: bool) -> Difference:
    """Difference of the means of two arms, (runs,) each; paired: by seed (Student), else Welch."""
    parts = [arm - baseline] if paired else [arm, baseline]
    centre, counts = float(arm.mean() - baseline.mean()), [len(baseline), len(arm)]
    if min(counts) < 2:
        return Difference(centre, None, paired, counts)
    variances, df = zip(*((np.var(x, ddof=1) / len(x), len(x) - 1) for x in parts), strict=True)
    total, weight = sum(variances), sum(v**2 / k for v, k in zip(variances, df, strict=True))
    # Satterthwaite's degrees of freedom; equal runs have an interval of width 0
    half = float(t95(total**2 / weight) * np.sqrt(total)) if weight > 0 else 0.0
    return Difference(centre, [centre - half, centre + half], paired, counts)


def first_crossing(
    seconds: np.ndarray, values: np.ndarray, base: float, target: float
) -> tuple[float, float]:
    """(after, by]: the marks between which a run's isotonic fit reaches the target; by is infinite
    if it never does. The base takes part in the fit, but reaches nothing itself."""
    known = np.isfinite(seconds) & np.isfinite(values)
    x, y = np.r_[0.0, seconds[known]], np.r_[base, values[known]]
    start = 0 if np.isfinite(base) else 1
    fit = isotonic_regression(y[start:]).x
    hit = np.flatnonzero(fit >= target - 1e-12)
    if not hit.size:
        return float(x[-1]), np.inf
    at = max(1, int(hit[0]) + start)
    return float(x[at - 1]), float(x[at])


def time_ratio(
    baseline: np.ndarray, arm: np.ndarray, step: float = 0.01
) -> tuple[float | None, list[float | None] | None]:
    """Geometric mean of the baseline's times over that of the arm's, and its 95 % interval.

    baseline, arm: (runs, 2), a log-normal time lies in (after, by]. The interval holds the ratios
    whose profile likelihood is within N/2 log(1 + t^2 / (N - 2)) of the highest: with exact times,
    Student's. None: no run of an arm reaches the target. step: resolution of the log of the ratio.
    """
    with np.errstate(divide="ignore"):
        logs = [np.log(baseline), np.log(arm)]
    ends = np.concatenate([x[np.isfinite(x)] for x in logs])
    means = np.arange(ends.min() - BEYOND, ends.max() + BEYOND, step)
    slow, fast = (_log_likelihood(x, means) for x in logs)
    spread = int(np.argmax(slow.max(axis=0) + fast.max(axis=0)))
    highest = [np.flatnonzero(x[:, spread] > x[:, spread].max() - 1e-6) for x in (slow, fast)]
    shift = round(highest[0].mean() - highest[1].mean())
    bounded = all(x[0] > 0 and x[-1] < len(means) - 1 for x in highest)
    ratio = float(np.exp(shift * step)) if bounded else None
    if min(len(baseline), len(arm)) < 2:
        return ratio, None
    n, size = len(baseline) + len(arm), len(means)
    floor = slow[:, spread].max() + fast[:, spread].max()
    floor -= n / 2 * np.log1p(t95(n - 2) ** 2 / (n - 2))
    at = np.arange(-size, 2 * size)  # beyond the table its edges stand for all farther times
    fixed = fast[np.clip(at, 0, size - 1)]

    def accepted(shift: int) -> bool:
        return bool((slow[np.clip(at + shift, 0, size - 1)] + fixed).max() >= floor)

    def end(sign: int) -> int | None:
        """The farthest accepted shift on one side; None if all are."""
        shifts = range(shift, sign * (size + 1), sign)
        count = bisect_left(shifts, True, key=lambda shift: not accepted(shift))
        return None if count == len(shifts) else shifts[count - 1]

    low, high = end(-1), end(1)
    lowest = 0.0 if low is None else float(np.exp(low * step))
    return ratio, [lowest, None if high is None else float(np.exp(high * step))]


def _log_likelihood(logs: np.ndarray, means: np.ndarray) -> np.ndarray:
    """(means, spreads): log-likelihood of intervals of log times, (runs, 2)."""
    low, high = ((logs[:, i, None, None] - means[:, None]) / SPREADS for i in (0, 1))
    # Probabilities of the upper tail would round to 0: the lower one is its mirror image.
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
    with np.errstate(divide="ignore"):
        return np.log(ndtr(high) - ndtr(low)).sum(axis=0)
