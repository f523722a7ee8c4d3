"""Estimators against enumeration, intervals against coverage."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binomtest

from pods.evaluation import scores


def stupid_pass_at_k(row: list[int], k: int) -> float:
    return float(
        np.mean([any(row[i] for i in subset) for subset in combinations(range(len(row)), k)])
    )


@pytest.mark.parametrize("repeats", [1, 2, 5, 7])
def test_pass_at_k_equals_the_mean_over_all_subsets(repeats):
    correct = np.random.default_rng(repeats).integers(0, 2, size=(40, repeats))
    for k in range(1, repeats + 1):
        expected = [stupid_pass_at_k(row, k) for row in correct.tolist()]
        np.testing.assert_allclose(scores.pass_at_k(correct, k), expected)


@pytest.mark.parametrize(("share", "questions"), [(0.7, 200), (0.05, 30), (0.97, 40)])
def test_intervals_cover_the_truth_about_95_times_in_100(share, questions):
    samples = np.random.default_rng(1).random((400, questions)) < share  # 400 experiments
    intervals = [scores.interval(row.astype(float)) for row in samples]
    covered = [interval["low"] <= share <= interval["high"] for interval in intervals]
    assert 0.91 <= np.mean(covered) <= 0.98


def test_nothing_correct_or_everything_has_wilsons_interval():
    nothing, everything, tokens, often, once = (
        scores.interval(np.array(row))
        for row in ([0.0] * 30, [1.0] * 30, [9.0] * 30, [0.1] * 10 + [0.0] * 10, [1.0] + [0.0] * 19)
    )
    wilson = binomtest(0, 30).proportion_ci(method="wilson")
    assert [nothing["low"], nothing["high"]] == pytest.approx([wilson.low, wilson.high], abs=1e-5)
    assert everything["low"] == pytest.approx(1 - nothing["high"])
    assert (tokens["low"], tokens["high"]) == pytest.approx((9, 9)), "no share"
    assert often["mean"] == once["mean"] == 0.05
    assert often["high"] < once["high"], "ten repeats of a question tell more than one"
