"""The rules of other papers against slow re-computations and hand-made ties."""

import itertools
import statistics

import numpy as np
import pytest

from pods.rules import Batch, select_batch
from pods.rules_of_others import over_all

RNG = np.random.default_rng(3)
REWARDS = RNG.choice([0.0, 0.1, 0.2, 1.0, 1.2], size=(3, 8))
REWARDS[1] = 1.2  # a prompt without signal
BATCH = Batch(rewards=REWARDS, lengths=RNG.integers(1, 40, size=(3, 8)))


def advantages_over_all(rewards: np.ndarray) -> list[list[float]]:
    return [
        [(r - statistics.fmean(row)) / (statistics.stdev(row) + 1e-4) for r in row]
        for row in rewards.tolist()
    ]


ADVANTAGES = advantages_over_all(REWARDS)
FLAT = [a for row in ADVANTAGES for a in row]


def largest(values: list[float], count: int) -> list[int]:
    """Indices of the largest, of equal values the first, ascending."""
    return sorted(sorted(range(len(values)), key=lambda i: (-round(values[i], 9), i))[:count])


def test_cppo_keeps_the_largest_advantages_of_each_prompt():
    chosen = select_batch("cppo", BATCH, 12)
    kept = [8 * p + i for p in range(3) for i in largest(list(map(abs, ADVANTAGES[p])), 4)]
    assert chosen.kept.tolist() == kept
    assert chosen.advantages == pytest.approx([FLAT[i] for i in kept], abs=1e-9)
    assert chosen.advantages[4:8].tolist() == [0.0] * 4  # the prompt without signal


def test_max_abs_advantage_keeps_nothing_of_a_prompt_without_signal():
    chosen = select_batch("max_abs_advantage", BATCH, 6)
    assert chosen.kept.tolist() == largest(list(map(abs, FLAT)), 6)
    assert chosen.advantages == pytest.approx([FLAT[i] for i in chosen.kept], abs=1e-9)
    assert not {8, 9, 10, 11, 12, 13, 14, 15} & set(chosen.kept.tolist())


def test_d3s_keeps_the_subset_of_largest_variance_of_advantages():
    batch = Batch(rewards=REWARDS[:, :4])
    flat = [a for row in advantages_over_all(batch.rewards) for a in row]
    best = max(statistics.pvariance(c) for c in itertools.combinations(flat, 5))
    chosen = select_batch("d3s", batch, 5)
    assert statistics.pvariance(flat[i] for i in chosen.kept) == pytest.approx(best, rel=1e-9)
    assert chosen.advantages == pytest.approx([flat[i] for i in chosen.kept], abs=1e-9)


@pytest.mark.parametrize(
    ("right", "kept", "why"),
    [
        ([1, 0, 0, 1, 1, 0, 1, 0], [0, 1, 2, 3], "two of each, the first by index"),
        ([0, 0, 0, 0, 0, 0, 1, 0], [0, 1, 2, 6], "one right: three wrong"),
        ([1, 1, 1, 1, 1, 1, 1, 0], [0, 1, 2, 7], "one wrong: three right"),
        ([1, 1, 1, 1, 1, 1, 1, 1], [0, 1, 2, 3], "no signal: the first"),
    ],
)
def test_half_right(right, kept, why):
    batch = Batch(rewards=np.array([right]) * 1.0 + 0.1)
    chosen = select_batch("half_right", batch, 4)
    assert chosen.kept.tolist() == kept, why
    if len(set(right)) > 1:
        (expected,) = advantages_over_all(batch.rewards)
        assert chosen.advantages == pytest.approx([expected[i] for i in kept], abs=1e-9)
    else:
        assert chosen.advantages.tolist() == [0.0] * 4


def test_gfpo_keeps_the_shortest_or_the_most_reward_per_token():
    costs = {"length": BATCH.lengths, "efficiency": -REWARDS / BATCH.lengths}
    for metric, cost in costs.items():
        kept = [8 * p + i for p in range(3) for i in largest((-cost[p]).tolist(), 2)]
        chosen = select_batch("gfpo", BATCH, 6, metric=metric)
        assert chosen.kept.tolist() == kept
        assert chosen.advantages is None
    tied = Batch(rewards=np.zeros((1, 4)), lengths=np.array([[3, 2, 2, 0]]))
    assert select_batch("gfpo", tied, 2).kept.tolist() == [1, 3]
    with pytest.raises(ValueError, match=r"needs batch\.lengths"):
        select_batch("gfpo", Batch(rewards=np.zeros((1, 4))), 2)
    with pytest.raises(ValueError, match="length or efficiency"):
        select_batch("gfpo", BATCH, 6, metric="longest")


@pytest.mark.parametrize(
    ("mass", "budget", "sizes", "why"),
    [
        (0.9, 6, [3, 0, 3, 0], "two prompts hold 0.96 of the variance"),
        (0.5, 6, [0, 0, 6, 0], "one prompt holds 0.64"),
        (1.0, 6, [2, 2, 2, 0], "the prompt without variance adds nothing"),
        (0.5, 12, [6, 0, 6, 0], "the budget needs a second prompt: each has 8"),
        (0.01, 32, [8, 8, 8, 8], "budget of all"),
    ],
)
def test_ragen2_shares_the_budget_among_prompts_of_large_variance(mass, budget, sizes, why):
    rewards = np.zeros((4, 8))
    rewards[0, :4], rewards[1, :4], rewards[2, :4] = 1.0, 0.35, 1.4  # variances .25 .03 .49 0
    chosen = select_batch("ragen2", Batch(rewards=rewards), budget, mass=mass)
    assert np.bincount(chosen.kept // 8, minlength=4).tolist() == sizes, why
    assert chosen.advantages is None
    of_one = rewards[2][chosen.kept[chosen.kept // 8 == 2] % 8]
    assert of_one.sum() == pytest.approx(1.4 * len(of_one) / 2, abs=0.71)  # an even sample


@pytest.mark.parametrize("rule", ["cppo", "half_right", "gfpo"])
def test_a_rule_by_prompt_refuses_a_budget_that_prompts_do_not_divide(rule):
    with pytest.raises(ValueError, match="budget=7: keeps equally many of each of 3 prompts"):
        select_batch(rule, BATCH, 7)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_advantages_over_all_n_are_those_of_plain_python(n):
    expected = advantages_over_all(REWARDS[:, :n]) if n > 1 else [[0.0]] * 3
    np.testing.assert_allclose(over_all(Batch(rewards=REWARDS[:, :n])), expected, atol=1e-9)
