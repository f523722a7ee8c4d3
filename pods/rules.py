"""Which m of the n rollouts of one prompt are trained on (paper, section 3). Imports only numpy.

    select("max_variance", [0.0, 1.0, 0.2, 0.9], m=2)             # -> array([0, 1])

A rule is a function (rewards, m, rng, **params) -> m indices; docs/extending.md shows one.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from pods.batch import Batch

Rule = Callable[..., np.ndarray]  # (rewards, m, rng, **params) -> (m,) indices
Rng: TypeAlias = "np.random.Generator | None"  # a text: else np.random is imported for a type


def max_variance(rewards: np.ndarray, m: int, rng: Rng) -> np.ndarray:
    """The m rewards of largest variance, exactly, in O(n log n) (paper, theorem 1).

    The best subset is the i highest and the m - i lowest for some i: prefix sums compare all i.
    Equal rewards are taken in index order from the low end and in reverse from the high end; equal
    variances go to the smaller i, as in the published code.
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


def max_reward(rewards: np.ndarray, m: int, rng: Rng) -> np.ndarray:
    """The m highest rewards; equal rewards in index order."""
    return np.argsort(-rewards, kind="stable")[:m]


def random(rewards: np.ndarray, m: int, rng: Rng) -> np.ndarray:
    """m rollouts drawn uniformly without replacement."""
    return (rng or np.random.default_rng()).choice(len(rewards), size=m, replace=False)


def percentile(rewards: np.ndarray, m: int, rng: Rng) -> np.ndarray:
    """The rewards at the mid-quantiles (i + 0.5) / m, i = 0..m-1: an even sample."""
    middles = ((2 * np.arange(m) + 1) * len(rewards)) // (2 * m)  # integers: no rounding at n == m
    return np.argsort(rewards, kind="stable")[middles]


def all_rollouts(rewards: np.ndarray, m: int, rng: Rng) -> np.ndarray:
    """Every rollout: plain GRPO. Requires n == m."""
    return np.arange(len(rewards))


RULES: dict[str, Rule] = {
    "max_variance": max_variance,
    "max_reward": max_reward,
    "random": random,
    "percentile": percentile,
    "all": all_rollouts,
}


def select(
    rule: str | Rule, rewards: np.ndarray, m: int, *, rng: Rng = None, **params: object
) -> np.ndarray:
    """(m,) ascending indices of the rollouts of one prompt that are kept, of rewards (n,).

    rule: a key of RULES, or the rule itself, which takes `params`. Raises ValueError.
    """
    if isinstance(rule, str) and rule not in RULES:
        raise ValueError(f"rule {rule!r} is unknown; valid rules: {', '.join(RULES)}")
    rule = RULES[rule] if isinstance(rule, str) else rule
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim != 1:
        raise ValueError(f"rewards must be 1-D, one per rollout; got shape {rewards.shape}")
    if not 1 <= m <= len(rewards):
        raise ValueError(f"m={m} must lie between 1 and n={len(rewards)}")
    if (bad := np.flatnonzero(~np.isfinite(rewards))).size:
        raise ValueError(f"rewards must be finite; NaN or inf at index {bad[0]}")
    name = f"rule {getattr(rule, '__name__', rule)}"
    return checked(rule(rewards, m, rng, **params), len(rewards), m, name)


def keep(batch: Batch, rule: str | Rule, m: int, rng: Rng = None) -> np.ndarray:
    """Indices of the m that the rule selects of each prompt, or of all with a reward if fewer."""
    kept = []
    for group in batch.groups:
        scored = group[np.isfinite(batch.rewards[group])]
        if len(scored) > m:
            scored = scored[select(rule, batch.rewards[scored], m, rng=rng)]
        kept.append(scored)
    return np.concatenate(kept)


def checked(
    indices: Sequence[int] | np.ndarray, total: int, count: int | None, source: str
) -> np.ndarray:
    """Distinct indices below `total`, `count` of them, ascending; ValueError naming the source."""
    values = np.unique(indices)
    if count is not None and np.shape(indices) != (count,):
        raise ValueError(f"{source} returned {np.size(indices)} indices, not {count}")
    whole = values.dtype.kind in "iu" or not len(values)
    if np.ndim(indices) != 1 or not whole or len(values) < len(indices):
        raise ValueError(f"{source} returned {indices!r}: distinct whole numbers are required")
    if len(values) and not 0 <= values[0] <= values[-1] < total:
        span = f"{values[0]} to {values[-1]}; 0 to {total - 1} are required"
        raise ValueError(f"{source} returned indices {span}")
    return values.astype(np.int64)
