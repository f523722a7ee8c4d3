"""How often intervals hold the truth where runs collapse, by simulation."""

import numpy as np
import pytest

from pods.figures import statistics


def test_intervals_of_runs_that_collapse_and_of_the_bootstrap_hold_the_truth_less_often():
    """Shares of 2,000 intervals that hold the truth; docs/statistics.md names them."""
    rng, sets, shares = np.random.default_rng(0), 2000, []
    for runs in (5, 10):
        held = 0
        for _ in range(sets):
            lost = 0.3 * (rng.random(runs) < 0.1)
            methods = 0.02 * rng.standard_normal((2, runs)) - np.stack([0 * lost, lost])
            low, high = statistics.difference(*methods, paired=True).ci95
            held += low <= -0.03 <= high
        shares.append(held / sets)
    assert shares == pytest.approx([0.75, 0.70], abs=0.03)
    held = 0
    for _ in range(sets):
        means = [statistics.resampled_means(rng.normal(size=(3, 1)), 500, rng) for _ in range(2)]
        low, high = np.percentile(means[1] - means[0], [2.5, 97.5])
        held += low <= 0 <= high
    assert held / sets == pytest.approx(0.80, abs=0.03)
