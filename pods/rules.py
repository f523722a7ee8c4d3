"""Stage 4: which m of a prompt's n rollouts are trained on (paper, section 3). Pure numpy.

    select("max_variance", [0.0, 1.0, 0.2, 0.9], m=2)  # -> array([0, 1])

A new rule is a function here, a line in RULES, config/rule/<name>.yaml and a case in its test.
"""

from collections.abc import Callable

import numpy as np

Rule = Callable[
    ..., np.ndarray
]  # (rewards (n,), m, rng, **params) -> m distinct indices, any order


def max_variance(rewards: np.ndarray, m: int, rng: np.random.Generator | None) -> np.ndarray:
    """The m rewards of largest variance, exactly, in O(n log n) (paper, theorem 1).

    The best subset is always the i highest and the m - i lowest for some i, so m + 1 candidates
    are compared through prefix sums. Equal rewards are taken in index order from the low end and
    in reverse from the high end; equal variances go to the smaller i, as in the published code.
    """
    order = np.argsort(rewards, kind="stable")
    values = rewards[order] * 0.5 - rewards[order[0]] * 0.5  # halved: a difference cannot overflow
    spread = values[-1]
    if spread == 0:
        return order[:m]
    values = values / spread - np.mean(values / spread)  # centred: 1e6 + 1e-3 loses nothing
    sums = np.concatenate(([0.0], np.cumsum(values)))
    squares = np.concatenate(([0.0], np.cumsum(values * values)))
    high = np.arange(m + 1)  # i, rollouts taken from the high end
    low, top = m - high, len(values) - high
    total = sums[low] + sums[-1] - sums[top]
    variance = (squares[low] + squares[-1] - squares[top]) / m - (total / m) ** 2
    best = int(np.argmax(variance >= variance.max() - 1e-12))  # rounding does not decide a tie
    return np.concatenate((order[: m - best], order[len(order) - best :]))


def max_reward(rewards: np.ndarray, m: int, rng: np.random.Generator | None) -> np.ndarray:
    """The m highest rewards; equal rewards in index order."""
    return np.argsort(-rewards, kind="stable")[:m]


def random(rewards: np.ndarray, m: int, rng: np.random.Generator | None) -> np.ndarray:
    """m rollouts drawn uniformly without replacement."""
    return (rng or np.random.default_rng()).choice(len(rewards), size=m, replace=False)


def percentile(rewards: np.ndarray, m: int, rng: np.random.Generator | None) -> np.ndarray:
    """The rewards at the mid-quantiles (i + 0.5) / m, i = 0..m-1: an even sample."""
    middles = ((2 * np.arange(m) + 1) * len(rewards)) // (2 * m)  # integers: no rounding at n == m
    return np.argsort(rewards, kind="stable")[middles]


def all_rollouts(rewards: np.ndarray, m: int, rng: np.random.Generator | None) -> np.ndarray:
    """Every rollout: plain GRPO. Requires n == m."""
    if m != len(rewards):
        raise ValueError(f"rule all keeps every rollout: m={m} must equal n={len(rewards)}")
    return np.arange(m)


RULES: dict[str, Rule] = {
    "max_variance": max_variance,
    "max_reward": max_reward,
    "random": random,
    "percentile": percentile,
    "all": all_rollouts,
}


def select(
    rule: str,
    rewards: np.ndarray,
    m: int,
    *,
    rng: np.random.Generator | None = None,
    **params: object,
) -> np.ndarray:
    """Indices of the rollouts that are kept.

    Args:
        rule: a key of RULES.
        rewards: (n,) total reward of each rollout of one prompt.
        m: how many are kept, 1 <= m <= n.
        rng: source of randomness of the rule `random`.
        params: a rule's own parameters (config key rule.params).

    Returns:
        (m,) distinct indices into `rewards`, ascending.

    Raises:
        ValueError: unknown rule, m outside 1..n, rewards not 1-D, NaN or infinite rewards.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    if rule not in RULES:
        raise ValueError(f"rule {rule!r} is unknown; valid rules: {', '.join(RULES)}")
    if rewards.ndim != 1:
        raise ValueError(f"rewards must be 1-D, one per rollout; got shape {rewards.shape}")
    if not 1 <= m <= len(rewards):
        raise ValueError(f"m={m} must lie between 1 and n={len(rewards)}")
    if not np.isfinite(rewards).all():
        bad = np.flatnonzero(~np.isfinite(rewards))
        raise ValueError(
            f"rewards must be finite; NaN or inf at index {bad[0]} ({len(bad)} in all)"
        )
    return np.sort(RULES[rule](rewards, m, rng, **params))
