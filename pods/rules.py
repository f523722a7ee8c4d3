"""Stage 4: which rollouts are trained on (paper, section 3). Pure numpy.

    select("max_variance", [0.0, 1.0, 0.2, 0.9], m=2)             # -> array([0, 1])
    select_batch("max_variance", Batch(rewards=rewards), budget)  # -> Selection

A rule is a function, and the name of its first parameter decides its input:
    (rewards, m, rng, **params) -> m indices              one prompt: (n,) rewards
    (batch, budget, rng, **params) -> Selection | indices the whole step: P x n rollouts
A rule with history is a class with `__call__` of such a shape, `state() -> dict` and `load(dict)`;
its state is saved in checkpoints. docs/extending.md shows one of each; rules_of_others.py holds
those of other papers.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from pods import rules_of_others
from pods.batch import Batch as Batch
from pods.batch import Selection as Selection
from pods.config import functions

Rule = Callable[..., Any]


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
    **rules_of_others.RULES,
}


def find(name: str) -> Rule:
    """The rule of this name: a key of RULES or path/to/file.py:function. A class is instantiated.

    Raises UserError (a file without the function) or ValueError (an unknown name).
    """
    if functions.is_path(name):
        rule = functions.load("rule.name", name)
    elif name in RULES:
        rule = RULES[name]
    else:
        raise ValueError(f"rule {name!r} is unknown; valid rules: {', '.join(RULES)}")
    return rule() if inspect.isclass(rule) else rule


def sees_batch(rule: Rule) -> bool:
    """Whether a rule chooses over the whole batch, by the name of its first parameter.

    Raises ValueError where that name is neither `batch` nor `rewards`.
    """
    first = next(iter(inspect.signature(rule).parameters), None)
    if first not in ("batch", "rewards"):
        raise ValueError(
            f"rule {label(rule)}: its first parameter is {first!r}; name it `rewards` (one prompt) "
            "or `batch` (the whole step)"
        )
    return first == "batch"


def select(
    rule: str | Rule,
    rewards: np.ndarray,
    m: int,
    *,
    rng: np.random.Generator | None = None,
    **params: object,
) -> np.ndarray:
    """Indices of the rollouts of one prompt that are kept.

    Args:
        rule: a key of RULES, path/to/file.py:function, or the rule itself.
        rewards: (n,) total reward of each rollout of one prompt.
        m: number of rollouts to keep, 1 <= m <= n.
        rng: source of randomness of the rule `random`.
        params: the rule's parameters (config key rule.params).

    Returns:
        (m,) distinct indices into `rewards`, ascending.

    Raises:
        ValueError: unknown rule, m outside 1..n, rewards not 1-D, NaN or infinite rewards, or a
            rule that returned other than m distinct indices.
    """
    rule = find(rule) if isinstance(rule, str) else rule
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim != 1:
        raise ValueError(f"rewards must be 1-D, one per rollout; got shape {rewards.shape}")
    if not 1 <= m <= len(rewards):
        raise ValueError(f"m={m} must lie between 1 and n={len(rewards)}")
    if not np.isfinite(rewards).all():
        bad = np.flatnonzero(~np.isfinite(rewards))
        raise ValueError(
            f"rewards must be finite; NaN or inf at index {bad[0]} ({len(bad)} in all)"
        )
    if sees_batch(rule):
        return select_batch(rule, Batch(rewards=rewards[None]), m, rng=rng, **params).kept
    return _checked(rule(rewards, m, rng, **params), m, len(rewards), rule)


def select_batch(
    rule: str | Rule,
    batch: Batch,
    budget: int,
    *,
    rng: np.random.Generator | None = None,
    **params: object,
) -> Selection:
    """The rollouts of one step that are kept; a per-prompt rule keeps budget / P of each prompt.

    Args:
        rule: a key of RULES, path/to/file.py:function, or the rule itself.
        batch: P x n rollouts.
        budget: number of rollouts to keep, 1 <= budget <= P * n.
        rng: source of randomness.
        params: the rule's parameters (config key rule.params).

    Raises:
        ValueError: as `select`; a budget that P does not divide; advantages of another length.
    """
    rule = find(rule) if isinstance(rule, str) else rule
    prompts, n = batch.shape
    if sees_batch(rule):
        chosen = rule(batch, budget, rng, **params)
        if not isinstance(chosen, Selection):
            chosen = Selection(chosen)
        return _ordered(chosen, budget, prompts * n, rule)
    if budget % prompts:
        raise ValueError(
            f"budget={budget}: rule {label(rule)} keeps equally many of each of {prompts} prompts"
        )
    kept = [
        p * n + select(rule, rewards, budget // prompts, rng=rng, **params)
        for p, rewards in enumerate(batch.rewards)
    ]
    return Selection(np.concatenate(kept))


def _ordered(chosen: Selection, budget: int, count: int, rule: Rule) -> Selection:
    """The selection with ascending indices, its advantages and reasons in the same order."""
    kept, found = _checked(chosen.kept, budget, count, rule), chosen.advantages
    order = np.argsort(chosen.kept, kind="stable")
    if chosen.reasons is not None and len(chosen.reasons) != budget:
        raise ValueError(
            f"rule {label(rule)} returned {len(chosen.reasons)} reasons for {budget} rollouts"
        )
    reasons = None if chosen.reasons is None else [str(chosen.reasons[i]) for i in order]
    if found is None:
        return Selection(kept, None, reasons)
    advantages = np.asarray(found, dtype=np.float64)
    if advantages.shape != (budget,) or not np.isfinite(advantages).all():
        raise ValueError(
            f"rule {label(rule)} returned advantages of shape {advantages.shape}, or not finite; "
            f"({budget},) finite numbers are required"
        )
    return Selection(kept, advantages[order], reasons)


def _checked(indices: Any, count: int, total: int, rule: Rule) -> np.ndarray:
    """`count` distinct indices below `total`, ascending; ValueError naming the rule otherwise."""
    kept = np.unique(indices)
    if np.shape(indices) != (count,):
        raise ValueError(f"rule {label(rule)} returned {np.size(indices)} indices, not {count}")
    if kept.dtype.kind not in "iu" or len(kept) < count or kept[0] < 0 or kept[-1] >= total:
        raise ValueError(
            f"rule {label(rule)} returned {len(kept)} distinct indices, {kept[0]} to {kept[-1]}; "
            f"{count} distinct whole numbers in 0..{total - 1} are required"
        )
    return kept


def label(rule: Rule) -> str:
    """The rule's name in messages."""
    return getattr(rule, "__name__", type(rule).__name__)
