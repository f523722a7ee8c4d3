"""Advantages of the rollouts that are kept (paper, section 3: mean and std over the m of a prompt).

    ADVANTAGES["kept"](batch, kept)   # (K,) ascending indices into the R rollouts -> (K,) floats

One kept rollout of a prompt, or equal rewards, carry no signal: advantage 0.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pods.batch import Batch

EPSILON = 1e-4  # added to the std of rewards, as in the published code and in TRL
Advantage = Callable[..., np.ndarray]  # (batch, kept (K,), **params) -> (K,)


def over_kept(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """(r - mean) / (std + 1e-4) over the kept of a prompt, unbiased std (paper, algorithm 1)."""
    return _by_prompt(batch, kept, lambda r, every: _normalised(r, r))


def over_all(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """(r - mean) / (std + 1e-4) with mean and std over all rollouts of the prompt; 0 where the kept
    ones are equal."""
    return _by_prompt(batch, kept, _normalised)


def rloo(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """r minus the mean of the other kept rollouts of the prompt (arXiv 2402.14740)."""
    return _by_prompt(batch, kept, lambda r, every: (r - r.mean()) * len(r) / (len(r) - 1))


def dr_grpo(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """r minus the mean of the kept of the prompt, no std (arXiv 2503.20783)."""
    return _by_prompt(batch, kept, lambda r, every: r - r.mean())


def gdpo(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """Each reward function normalised as in `kept`, then the weighted sum (arXiv 2601.05242 without
    its last step, which normalises these sums over the batch).

    A batch without by_function has the advantages of `kept`.
    """
    if not batch.by_function:
        return over_kept(batch, kept)
    total = np.zeros(len(kept))
    for name, rewards in batch.by_function.items():
        total += batch.weights.get(name, 1.0) * over_kept(replace(batch, rewards=rewards), kept)
    return total


ADVANTAGES: dict[str, Advantage] = {
    "kept": over_kept,
    "all": over_all,
    "rloo": rloo,
    "dr_grpo": dr_grpo,
    "gdpo": gdpo,
}


def checked(advantages: np.ndarray, count: int) -> np.ndarray:
    """The advantages as an array; ValueError unless they are `count` finite numbers."""
    values = np.asarray(advantages, dtype=np.float64)
    if values.shape != (count,):
        raise ValueError(
            f"it returned advantages {advantages!r:.200} of shape {values.shape}; "
            f"({count},) are required"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"it returned {values}; finite numbers are required")
    return values


def _by_prompt(
    batch: Batch, kept: np.ndarray, formula: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """`formula` on the kept and on all rewards of each prompt; NaN, no reward, has advantage 0."""
    kept = np.asarray(kept, dtype=np.int64)
    rewards = np.asarray(batch.rewards, dtype=np.float64)
    scored = np.isfinite(rewards)
    advantages = np.zeros(len(kept))
    for prompt in np.unique(batch.prompt[kept]):
        members = (batch.prompt[kept] == prompt) & scored[kept]
        chosen = rewards[kept[members]]
        if len(np.unique(chosen)) < 2:
            continue  # equal rewards carry no signal, but the rounding of their mean would
        advantages[members] = formula(chosen, rewards[(batch.prompt == prompt) & scored])
    return advantages


def _normalised(rewards: np.ndarray, over: np.ndarray) -> np.ndarray:
    """(rewards - mean) / (std + 1e-4), mean and unbiased std of `over` (two or more numbers)."""
    return (rewards - over.mean()) / (over.std(ddof=1) + EPSILON)
