"""The selection rules against brute force, theorems and hand-made cases."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pods.config.errors import UserError
from pods.rules import RULES, Batch, Selection, find, sees_batch, select, select_batch

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


@settings(max_examples=100, deadline=None)
@given(rewards_and_m(), st.sampled_from([r for r in RULES if r not in ("all", "gfpo")]))
def test_every_rule_returns_m_distinct_ascending_indices(case, rule):
    rewards, m = case
    kept = select(rule, rewards, m, rng=np.random.default_rng(0))
    assert len(kept) == m
    assert (np.diff(kept) > 0).all()
    assert kept[0] >= 0
    assert kept[-1] < len(rewards)


@pytest.mark.parametrize("ones", range(9))
def test_binary_rewards_keep_half_right_where_possible(ones):
    rewards = np.array([1.0] * ones + [0.0] * (8 - ones))
    kept = select("max_variance", rewards, 4)
    assert rewards[kept].sum() == min(max(2, 4 - (8 - ones)), ones)  # theorem: k = m/2


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


def test_random_is_uniform_and_seeded():
    draws = [
        tuple(select("random", np.zeros(4), 2, rng=np.random.default_rng(s))) for s in range(600)
    ]
    counts = {pair: draws.count(pair) for pair in itertools.combinations(range(4), 2)}
    assert sum(counts.values()) == 600
    assert min(counts.values()) > 60  # 100 expected, standard deviation 9
    again = select("random", np.zeros(4), 2, rng=np.random.default_rng(5))
    assert tuple(again) == draws[5]
    assert len(select("random", np.zeros(4), 2)) == 2  # without a generator: unseeded


@pytest.mark.parametrize(
    ("rule", "rewards", "m", "message"),
    [
        ("max_variance", [1.0, math.nan], 1, "index 1"),
        ("random", [1.0, math.inf], 1, "finite"),
        ("max_reward", [1.0, 2.0], 0, "m=0"),
        ("max_variance", [1.0, 2.0], 3, "n=2"),
        ("max_variance", [[1.0], [2.0]], 1, "1-D"),
        ("all", [1.0, 2.0], 1, "must equal n=2"),
        ("best", [1.0], 1, "valid rules: max_variance"),
        ("max_variance", [], 1, "n=0"),
    ],
)
def test_invalid_input_says_what_is_wrong(rule, rewards, m, message):
    with pytest.raises(ValueError, match=message):
        select(rule, rewards, m)


def test_a_million_rewards_agree_with_the_prefix_of_the_theorem():
    rewards = np.random.default_rng(0).normal(size=1_000_000)
    kept = select("max_variance", rewards, 1000)
    ranks = np.argsort(np.argsort(rewards))[kept]
    assert ((ranks < 1000) | (ranks >= 999_000)).all()  # only extremes


PER_PROMPT = [name for name in RULES if name != "all" and not sees_batch(RULES[name])]


@pytest.mark.parametrize("rule", PER_PROMPT)
def test_a_batch_keeps_of_each_prompt_as_select_does(rule):
    rewards = np.random.default_rng(1).normal(size=(3, 8))
    whole = select_batch(rule, Batch(rewards=rewards), 12, rng=np.random.default_rng(7))
    rng = np.random.default_rng(7)
    each = [8 * p + select(rule, row, 4, rng=rng) for p, row in enumerate(rewards)]
    assert whole.kept.tolist() == np.concatenate(each).tolist()
    assert whole.advantages is None


def shortest(batch: Batch, budget: int, rng: np.random.Generator | None, longest: bool = False):
    order = np.argsort(batch.lengths.reshape(-1), kind="stable")
    return order[-budget:] if longest else order[:budget]


def test_a_batch_rule_shares_the_budget_out_as_it_likes():
    lengths = np.array([[9, 8, 1, 7], [2, 3, 4, 5]])
    batch = Batch(rewards=np.zeros((2, 4)), lengths=lengths)
    assert select_batch(shortest, batch, 3).kept.tolist() == [2, 4, 5]
    assert select_batch(shortest, batch, 3, longest=True).kept.tolist() == [0, 1, 3]
    one = select(lambda batch, budget, rng: np.arange(budget), np.zeros(4), 2)
    assert one.tolist() == [0, 1]  # a batch rule on one prompt


def test_advantages_and_reasons_of_a_rule_follow_its_indices_into_ascending_order():
    def rule(batch, budget, rng):
        return Selection([5, 0, 3], [0.5, 0.0, 0.3], ["high", "low", "middle"])

    chosen = select_batch(rule, Batch(rewards=np.zeros((2, 3))), 3)
    assert chosen.kept.tolist() == [0, 3, 5]
    assert chosen.advantages.tolist() == [0.0, 0.3, 0.5]
    assert chosen.reasons == ["low", "middle", "high"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([0, 1], "rule broken returned 2 indices, not 3"),
        ([0, 1, 1], "2 distinct indices"),
        ([0, 1, 8], "whole numbers in 0..7"),
        ([-1, 0, 1], "whole numbers in 0..7"),
        ([0.0, 1.0, 2.0], "whole numbers"),
        (Selection([0, 1, 2], [0.0, 1.0]), r"advantages of shape \(2,\)"),
        (Selection([0, 1, 2], [0.0, 1.0, math.nan]), "not finite"),
        (Selection([0, 1, 2], reasons=["best"]), "rule broken returned 1 reasons for 3 rollouts"),
    ],
)
def test_what_a_rule_returns_is_checked_by_name(returned, message):
    def broken(batch, budget, rng):
        return returned

    with pytest.raises(ValueError, match=message):
        select_batch(broken, Batch(rewards=np.zeros((2, 4))), 3)


@pytest.mark.parametrize(
    ("rule", "budget", "message"),
    [
        ("max_variance", 3, "equally many of each of 2 prompts"),
        (lambda values, m, rng: [0], 2, "its first parameter is 'values'"),
        (lambda: [0], 2, "its first parameter is None; name it `rewards`"),
        ("best", 2, "valid rules: max_variance"),
    ],
)
def test_a_rule_that_does_not_fit_the_batch_is_refused(rule, budget, message):
    with pytest.raises(ValueError, match=message):
        select_batch(rule, Batch(rewards=np.zeros((2, 4))), budget)


def test_a_rule_is_found_in_a_file_and_a_class_becomes_an_instance(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "class Counting:\n"
        "    def __init__(self): self.calls = 0\n"
        "    def __call__(self, batch, budget, rng): self.calls += 1; return range(budget)\n"
        "    def state(self): return {'calls': self.calls}\n"
        "    def load(self, state): self.calls = state['calls']\n"
    )
    rule = find(f"{file}:Counting")
    assert select_batch(rule, Batch(rewards=np.zeros((1, 4))), 2).kept.tolist() == [0, 1]
    assert rule.state() == {"calls": 1}
    with pytest.raises(UserError, match=r"^rule.name=\S+:Missing: Missing is not defined"):
        find(f"{file}:Missing")
