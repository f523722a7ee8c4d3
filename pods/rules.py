"""Which m of the n rollouts of one prompt are trained on (paper, section 3). Imports only numpy.

    select("max_variance", [0.0, 1.0, 0.2, 0.9], m=2)             # -> array([0, 1])

A rule is a function (rewards, m, rng, **params) -> m indices; docs/extending.md shows one.
"""

from __future__ import annotations  # else np.random is imported for a type

from collections.abc import Callable, Sequence

import numpy as np

from pods.batch import Batch

Rule = Callable[..., np.ndarray]  # (rewards, m, rng, **params) -> (m,) indices


def max_variance(rewards: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """The m rewards of largest variance, exactly, in O(n log n) (paper, theorem 1).

    The best subset is the i highest and the m - i lowest for some i: prefix sums compare all i.
    Equal rewards are taken in index order from the low end and in reverse from the high end; equal
    variances go to the smaller i, as in the published code.
    """
    order = np.argsort(rewards, kind="stable")
    values = rewards[order] * 0.5  # halved: a difference cannot overflow
    values = values - values[0]
    if values[-1] == 0:
        return order[:m]
    values = values / values[-1]
    values = values - np.mean(values)  # centred: 1e6 + 1e-3 loses nothing
    sums = np.concatenate(([0.0], np.cumsum(values)))
    squares = np.concatenate(([0.0], np.cumsum(values * values)))
    # One entry for each i = 0..m: the i highest and the m - i lowest.
    low = np.arange(m, -1, -1)
    top = np.arange(len(values), len(values) - m - 1, -1)
    total = sums[low] + sums[-1] - sums[top]
    total_of_squares = squares[low] + squares[-1] - squares[top]
    variance = total_of_squares / m - (total / m) ** 2
    best = np.argmax(variance >= variance.max() - 1e-12)  # rounding does not decide a tie
    return np.concatenate((order[: low[best]], order[top[best] :]))


def max_reward(rewards: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """The m highest rewards; equal rewards in index order."""
    return np.argsort(-rewards, kind="stable")[:m]


def random(rewards: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """m rollouts sampled uniformly without replacement."""
    return rng.choice(len(rewards), size=m, replace=False)


def percentile(rewards: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """The rewards at the mid-quantiles (i + 0.5) / m, i = 0..m-1: an even sample."""
    n = len(rewards)
    middles = (2 * np.arange(m) + 1) * n // (2 * m)  # integers: no rounding at n == m
    return np.argsort(rewards, kind="stable")[middles]


def all_rollouts(rewards: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
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
    rule: str | Rule,
    rewards: np.ndarray,
    m: int,
    *,
    rng: np.random.Generator | None = None,
    **params: object,
) -> np.ndarray:
    """(m,) ascending indices of the rollouts of one prompt that are kept, of rewards (n,).

    rule: a key of RULES, or the rule itself, which takes `params`. rng: None is an unseeded one.
    Raises ValueError.
    """
    if isinstance(rule, str):
        if rule not in RULES:
            raise ValueError(f"rule {rule!r} is unknown; valid rules: {', '.join(RULES)}")
        rule = RULES[rule]
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim != 1:
        raise ValueError(f"rewards must be 1-D, one per rollout; got shape {rewards.shape}")
    if not 1 <= m <= len(rewards):
        raise ValueError(f"m={m} must lie between 1 and n={len(rewards)}")
    finite = np.isfinite(rewards)
    if not finite.all():
        raise ValueError(f"rewards must be finite; NaN or inf at index {np.argmin(finite)}")
    kept = rule(rewards, m, rng or np.random.default_rng(), **params)
    return checked(kept, len(rewards), m, f"rule {getattr(rule, '__name__', rule)}")


def keep(
    batch: Batch, rule: str | Rule, m: int, rng: np.random.Generator | None = None
) -> np.ndarray:
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
    values = np.asarray(indices)
    whole = values.size == 0 or values.dtype.kind in "iu"
    if not whole or values.ndim != 1 or len(np.unique(values)) < values.size:
        raise ValueError(
            f"{source} returned {indices!r:.200}: one list of distinct whole numbers is required"
        )
    if count not in (None, values.size):
        raise ValueError(f"{source} returned {values.size} indices, not {count}")
    values = np.sort(values).astype(np.int64)
    if values.size and not 0 <= values[0] <= values[-1] < total:
        raise ValueError(
            f"{source} returned indices {values[0]} to {values[-1]}; 0 to {total - 1} are required"
        )
    return values
