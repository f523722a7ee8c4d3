"""pods/figures/statistics.py: by hand, against Student's exact interval, and by simulation."""

import numpy as np
import pytest
from scipy import stats

from pods.figures import statistics

NAN, INF = float("nan"), float("inf")
MARKS = np.arange(1, 13) / 2  # hours, as in the published figures


def curves(rng, times, noise):
    """(runs, points): accuracy that rises from .6 to .8 with a run's time constant, and noise."""
    rise = 0.6 + 0.2 * (1 - np.exp(-MARKS / times[:, None]))
    return rise + noise * rng.standard_normal((len(times), len(MARKS)))


def test_the_standard_error_of_three_runs_and_of_two_where_one_has_a_gap():
    mean, error, n = statistics.mean_and_error(np.array([[1.0, 1.0], [2.0, 3.0], [6.0, NAN]]))
    assert (mean.tolist(), n.tolist()) == ([3.0, 2.0], [3, 2])
    assert error == pytest.approx([np.sqrt(7 / 3), 1.0])  # ddof 1


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("runs", [3, 5])
def test_the_main_interval_errs_in_five_of_a_hundred_null_comparisons(runs, paired):
    rng, wrong, sets = np.random.default_rng(runs), 0, 2000
    for _ in range(sets):
        seeds = np.exp(0.3 * rng.standard_normal(runs))  # what two runs of one seed share
        averages = []
        for _ in range(2):
            own = np.exp(0.2 * rng.standard_normal(runs))
            values = curves(rng, 0.8 * own * (seeds if paired else 1), 0.01)
            averages.append([statistics.time_average(MARKS, run, 0.6, 6.0) for run in values])
        low, high = statistics.difference(*map(np.array, averages), paired).ci95
        wrong += not low <= 0 <= high
    assert 0.03 <= wrong / sets <= 0.07


@pytest.mark.parametrize(("runs", "ratio"), [(3, 1.5), (5, 1.0), (5, 2.0)])
def test_the_time_interval_covers_the_ratio_although_marks_hide_the_times(runs, ratio):
    rng, sets = np.random.default_rng(runs), 200
    covered = censored = 0
    for _ in range(sets):
        crossings = []
        for median in (3.0, 3.0 / ratio):
            values = curves(rng, median * np.exp(0.35 * rng.standard_normal(runs)), 0.002)
            goal = 0.6 + 0.2 * (1 - np.exp(-1))  # a run reaches it at its own time constant
            crossings.append([statistics.first_crossing(MARKS, run, 0.6, goal) for run in values])
        low, high = statistics.time_ratio(*map(np.array, crossings), step=0.05)[1]
        covered += low <= ratio <= (INF if high is None else high)
        censored += np.isinf(crossings).sum()
    assert covered / sets >= 0.92
    assert censored, "some runs have to end before they reach the target"


def test_exact_times_give_the_interval_of_student():
    slow, fast = np.array([2.0, 3.1, 2.6]), np.array([1.1, 1.9, 1.2, 1.4])
    near = (np.stack([times * (1 - 1e-7), times], axis=1) for times in (slow, fast))
    ratio, interval = statistics.time_ratio(*near, step=0.002)
    student = stats.ttest_ind(np.log(slow), np.log(fast)).confidence_interval()
    assert ratio == pytest.approx(stats.gmean(slow) / stats.gmean(fast), rel=0.003)
    assert interval == pytest.approx(np.exp([student.low, student.high]), rel=0.01)


def test_a_target_that_one_arm_never_reaches_gives_a_bound():
    reached = np.array([[1.0, 1.5], [1.5, 2.0], [2.0, 2.5]])
    never = np.array([[6.0, INF]] * 3)
    ratio, (low, high) = statistics.time_ratio(reached, never)
    assert (ratio, low) == (None, 0)
    assert high == pytest.approx(1 / statistics.time_ratio(never, reached)[1][0], rel=0.03)
    assert 0.25 < high < 1, "the method is slower, by a factor that has no limit"
    assert statistics.time_ratio(never, reached)[1][1] is None
    assert statistics.time_ratio(reached[:1], reached)[1] is None, "one run has no interval"


@pytest.mark.parametrize(
    ("values", "base", "target", "expected"),
    [
        pytest.param([0.1, 0.5, 0.9], 0.0, 0.5, (1, 2), id="between two points"),
        pytest.param([0.1, 0.5, 0.9], NAN, 0.1, (0, 1), id="before the first point"),
        pytest.param([0.1, 0.5, 0.9], 0.3, 0.2, (0, 1), id="the base reaches nothing itself"),
        pytest.param([0.1, 0.5, 0.9], 0.0, 0.95, (3, INF), id="never"),
        pytest.param([0.6, 0.2, 0.9], 0.0, 0.5, (2, 3), id="a peak that is lost again: fit .4"),
        pytest.param([0.1, NAN, 0.9], 0.0, 0.5, (1, 3), id="a gap widens the interval"),
    ],
)
def test_first_crossing(values, base, target, expected):
    seconds = np.array([1.0, 2.0, 3.0])
    assert statistics.first_crossing(seconds, np.array(values), base, target) == expected


@pytest.mark.parametrize(
    ("values", "base", "end", "expected"),
    [
        pytest.param([0.2, 0.6], 0.0, 2.0, (0.1 + 0.4) / 2, id="trapezoids from the base on"),
        pytest.param([0.2, 0.6], NAN, 2.0, (0.2 + 0.4) / 2, id="without a base"),
        pytest.param([0.2, 0.6], 0.0, 1.5, (0.1 + 0.15) / 1.5, id="ends between points"),
        pytest.param([NAN, 0.6], 0.0, 2.0, 0.3, id="a gap is bridged"),
        pytest.param([0.2, 0.6], 0.0, 3.0, (0.1 + 0.4 + 0.6) / 3, id="the last value holds"),
    ],
)
def test_time_average(values, base, end, expected):
    average = statistics.time_average(np.array([1.0, 2.0]), np.array(values), base, end)
    assert average == pytest.approx(expected)


def test_level_and_intervals_of_scipy():
    values = np.array([[0.9, 0.1, 0.2, NAN, 0.3], [NAN, NAN, NAN, 0.4, 0.6]])
    assert statistics.level(values) == pytest.approx([0.2, 0.5])
    a, b = np.array([0.1, 0.3, 0.2]), np.array([0.4, 0.2, 0.9, 0.5])
    welch = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert statistics.difference(a, b, False).ci95 == pytest.approx([welch.low, welch.high])
    paired = stats.ttest_rel(b[:3], a).confidence_interval()
    assert statistics.difference(a, b[:3], True).ci95 == pytest.approx([paired.low, paired.high])
    assert statistics.difference(a[:1], b, False).ci95 is None
