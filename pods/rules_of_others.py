"""Selection rules of other papers, reduced to the choice after scoring. Pure numpy.

    uv run train.py rule=cppo          # config/rule/<name>.yaml: paper, formula, published values

Each keeps exactly `budget` rollouts, so that a step costs the same under every rule. A rule that
returns advantages takes them over all n rollouts of a prompt, as its paper does; for the others the
advantage function of the config computes them on the kept.
"""

import numpy as np

from pods.batch import EPSILON, Batch, Selection

Generator = np.random.Generator | None


def cppo(batch: Batch, budget: int, rng: Generator) -> Selection:
    """The m largest |advantage| of each prompt (CPPO, arXiv 2503.22342)."""
    advantages = over_all(batch)
    order = np.argsort(-np.abs(advantages), axis=1, kind="stable")
    return _with(advantages, _flat(order[:, : _of_each(batch, budget)], batch))


def max_abs_advantage(batch: Batch, budget: int, rng: Generator) -> Selection:
    """The largest |advantage| of the whole step: a prompt without signal keeps nothing."""
    advantages = over_all(batch)
    return _with(advantages, np.argsort(-np.abs(advantages).reshape(-1), kind="stable")[:budget])


def d3s(batch: Batch, budget: int, rng: Generator) -> Selection:
    """The advantages of largest variance over the whole step (D3S, arXiv 2509.22115, its rollout
    level): max_variance on the advantages of all prompts."""
    from pods.rules import max_variance  # which imports this file

    advantages = over_all(batch)
    return _with(advantages, max_variance(advantages.reshape(-1), budget, rng))


def half_right(batch: Batch, budget: int, rng: Generator) -> Selection:
    """Half right and half wrong of each prompt as far as there are enough (Reinforce-Ada,
    arXiv 2510.04996). Right: above the middle of the prompt's lowest and highest reward.

    Rollouts of one prompt are exchangeable, so that the first by index are a fair sample.
    """
    m, rewards = _of_each(batch, budget), np.asarray(batch.rewards, dtype=np.float64)
    right = rewards > (rewards.min(axis=1, keepdims=True) + rewards.max(axis=1, keepdims=True)) / 2
    order = np.argsort(~right, axis=1, kind="stable")  # right ones first, both by index
    highs = right.sum(axis=1)
    taken = np.clip(m // 2, m - (right.shape[1] - highs), highs)
    kept = [
        np.r_[row[:i], row[high : high + m - i]]
        for row, high, i in zip(order, highs, taken, strict=True)
    ]
    return _with(over_all(batch), _flat(np.array(kept), batch))


def gfpo(batch: Batch, budget: int, rng: Generator, metric: str = "length") -> np.ndarray:
    """The m shortest of each prompt, or with metric=efficiency the m of most reward per token
    (GFPO, arXiv 2508.09726)."""
    if batch.lengths is None:
        raise ValueError("rule gfpo needs batch.lengths")
    if metric not in ("length", "efficiency"):
        raise ValueError(f"rule.params.metric={metric}: must be length or efficiency")
    lengths = np.maximum(batch.lengths, 1)
    cost = lengths if metric == "length" else -batch.rewards / lengths
    order = np.argsort(cost, axis=1, kind="stable")
    return _flat(order[:, : _of_each(batch, budget)], batch)


def ragen2(batch: Batch, budget: int, rng: Generator, mass: float = 0.9) -> np.ndarray:
    """The prompts of largest reward variance that make up `mass` of its sum (RAGEN-2).

    The paper trains on all n of these prompts. Here they share the budget evenly, each with an even
    sample of its rollouts; further prompts join where the budget is larger than their n.
    """
    if not 0 < mass <= 1:
        raise ValueError(f"rule.params.mass={mass}: must be in (0, 1]")
    n = batch.shape[1]
    variances = np.var(np.asarray(batch.rewards, dtype=np.float64), axis=1)
    order = np.argsort(-variances, kind="stable")
    masses = np.cumsum(variances[order])
    count = int(np.searchsorted(masses, mass * masses[-1] * (1 - 1e-12))) + 1
    chosen = order[: max(count, -(-budget // n))][:budget]
    kept = []
    for p, part in zip(chosen, np.array_split(np.arange(budget), len(chosen)), strict=True):
        middles = ((2 * np.arange(len(part)) + 1) * n) // (2 * len(part))
        kept.append(p * n + np.argsort(batch.rewards[p], kind="stable")[middles])
    return np.concatenate(kept)


RULES = {
    "cppo": cppo,
    "max_abs_advantage": max_abs_advantage,
    "d3s": d3s,
    "half_right": half_right,
    "gfpo": gfpo,
    "ragen2": ragen2,
}


def over_all(batch: Batch) -> np.ndarray:
    """(P, n) advantages (r - mean) / (std + 1e-4), mean and unbiased std over the n of a prompt.

    advantages.over_all has TRL's operations to the bit, and torch, which replay.py need not import.
    """
    rewards = np.asarray(batch.rewards, dtype=np.float64)
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    centred[np.ptp(rewards, axis=1) == 0] = 0.0  # rounding of the mean is no signal
    return centred / (
        rewards.std(axis=1, ddof=min(1, rewards.shape[1] - 1), keepdims=True) + EPSILON
    )


def _of_each(batch: Batch, budget: int) -> int:
    """m; ValueError where the prompts do not divide the budget."""
    prompts = batch.shape[0]
    if budget % prompts:
        raise ValueError(f"budget={budget}: keeps equally many of each of {prompts} prompts")
    return budget // prompts


def _flat(columns: np.ndarray, batch: Batch) -> np.ndarray:
    """(P, m) indices into the n of each prompt -> (P * m,) flat indices."""
    prompts, n = batch.shape
    return (columns + n * np.arange(prompts)[:, None]).reshape(-1)


def _with(advantages: np.ndarray, kept: np.ndarray) -> Selection:
    return Selection(kept, advantages.reshape(-1)[kept])
