"""The selection rules against brute force, theorems and hand-made cases."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pods.batch import Batch
from pods.rules import RULES, keep, select

floats = st.floats(-1e6, 1e6, allow_nan=False, width=32)
levels = st.sampled_from([0.0, 0.025, 0.1, 1.0, 1.2])  # graded rewards are full of ties


@st.composite
def rewards_and_m(draw):
    rewards = draw(st.lists(st.one_of(floats, levels), min_size=1, max_size=9))
    return np.array(rewards), draw(st.integers(1, len(rewards)))


def exact_variance(values) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((v - mean) ** 2 for v in values) / len(values)


@settings(max_examples=400, deadline=None)
@given(rewards_and_m())
def test_max_variance_is_the_best_of_all_subsets(case):
    rewards, m = case
    best = max(exact_variance(subset) for subset in itertools.combinations(rewards, m))
    kept = select("max_variance", rewards, m)
    assert exact_variance(rewards[kept]) == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_max_variance_survives_a_large_offset_and_scale():
    rng = np.random.default_rng(0)
    small = rng.permutation(np.linspace(0, 1e-3, 12))
    plain = select("max_variance", small, 5)
    assert np.array_equal(plain, select("max_variance", 1e6 + small, 5))
    assert np.array_equal(plain, select("max_variance", small * 1e300, 5))
    assert np.array_equal(plain, select("max_variance", small * 1e-200, 5))
    assert list(select("max_variance", np.array([-1.7e308, 0.0, 1.7e308]), 2)) == [0, 2]


@pytest.mark.parametrize(
    ("rule", "rewards", "m", "kept", "why"),
    [
        ("max_variance", [5, 5, 5, 5], 2, [0, 1], "nothing to choose: first indices"),
        ("max_variance", [1, 1, 1, 0, 0, 0], 2, [2, 3], "low end by index, high end in reverse"),
        ("max_variance", [0, 1, 0.2, 0.9], 1, [0], "m = 1 has no variance: smaller i wins"),
        ("max_variance", [0, 0, 1, 1], 3, [0, 1, 2], "equal variances: i = 0, the three lowest"),
        ("max_variance", [3, 1, 2], 3, [0, 1, 2], "n == m keeps all"),
        ("max_reward", [1, 3, 3, 3, 0], 2, [1, 2], "ties by index"),
        ("percentile", [4, 3, 2, 1, 0], 1, [2], "one quantile is the median"),
        ("percentile", [0, 1, 2, 3, 4, 5, 6, 7], 4, [1, 3, 5, 7], "floor(n (i + 0.5) / m)"),
        ("percentile", [2, 1, 0], 3, [0, 1, 2], "n == m keeps all"),
        ("all", [1, 2], 2, [0, 1], "identity"),
    ],
)
def test_cases(rule, rewards, m, kept, why):
    assert list(select(rule, rewards, m)) == kept, why


def test_a_rule_of_the_users_takes_its_parameters():
    def run(rewards, m, rng, start=0):
        return range(start, start + m)

    assert list(select(run, np.zeros(4), 2, start=1)) == [1, 2]


def test_random_is_uniform_and_seeded():
    draws = [
        tuple(select("random", np.zeros(4), 2, rng=np.random.default_rng(s))) for s in range(600)
    ]
    counts = [draws.count(pair) for pair in itertools.combinations(range(4), 2)]
    assert sum(counts) == 600
    assert min(counts) > 60  # 100 expected, standard deviation 9
    assert tuple(select("random", np.zeros(4), 2, rng=np.random.default_rng(5))) == draws[5]
    assert len(select("random", np.zeros(4), 2)) == 2  # without a generator: unseeded


@pytest.mark.parametrize(
    ("rule", "rewards", "m", "message"),
    [
        ("max_variance", [1.0, math.nan], 1, "index 1"),
        ("random", [1.0, math.inf], 1, "finite"),
        ("max_reward", [1.0, 2.0], 0, "m=0"),
        ("max_variance", [1.0, 2.0], 3, "n=2"),
        ("max_variance", [[1.0], [2.0]], 1, "1-D"),
        ("all", [1.0, 2.0], 1, "returned 2 indices, not 1"),
        ("best", [1.0], 1, "valid rules: max_variance"),
        ("max_variance", [], 1, "n=0"),
    ],
)
def test_invalid_input_says_what_is_wrong(rule, rewards, m, message):
    with pytest.raises(ValueError, match=message):
        select(rule, rewards, m)


@pytest.mark.parametrize("rule", [name for name in RULES if name != "all"])
def test_keep_selects_of_each_prompt_those_that_have_a_reward(rule):
    """8, 5 and 3 rollouts of three prompts, in mixed order; the last has fewer than m."""
    rng = np.random.default_rng(1)
    prompt = rng.permutation(np.repeat([0, 1, 2], [8, 5, 3]))
    rewards = rng.normal(size=16)
    rewards[np.flatnonzero(prompt == 0)[2]] = math.nan
    kept = keep(Batch(prompt=prompt, rewards=rewards), rule, 4, np.random.default_rng(7))
    rng, expected = np.random.default_rng(7), []
    for p in range(3):
        group = np.flatnonzero((prompt == p) & np.isfinite(rewards))
        chosen = select(rule, rewards[group], 4, rng=rng) if len(group) > 4 else range(len(group))
        expected += group[chosen].tolist()
    assert kept.tolist() == expected


def test_a_rule_returns_m_indices():  # tests/unit/test_driver.py: distinct, whole, in the range
    with pytest.raises(ValueError, match="rule <lambda> returned 2 indices, not 3"):
        select(lambda rewards, m, rng: [0, 1], np.zeros(4), 3)


@pytest.mark.parametrize("value", [None, (i for i in "ab"), np.array([True, False, True, False])])
def test_what_is_no_list_of_indices_is_not_counted_as_one(value):
    with pytest.raises(
        ValueError, match=r"rule <lambda> returned .*: one list of distinct whole numbers"
    ) as e:
        select(lambda rewards, m, rng: value, np.zeros(4), 2)
    assert repr(value) in str(e.value)
