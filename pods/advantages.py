"""Stage 5: advantages of the rollouts that are kept (paper, section 3: mean and std over the m).

    ADVANTAGES["kept"](batch, selection.kept)   # -> (K,)

A function here takes a Batch of P x n rollouts and (K,) ascending flat indices, and returns (K,)
floats. Prompts may keep different numbers of rollouts. Computed in the precision of batch.rewards,
with the operations of TRL, so that training at n == m equals the stock GRPOTrainer to the bit.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from pods.batch import EPSILON, Batch
from pods.config import functions

Advantage = Callable[..., np.ndarray]  # (batch, kept (K,), **params) -> (K,)


def over_kept(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """(r - mean) / (std + 1e-4) over the kept of a prompt, unbiased std (paper, algorithm 1)."""
    return _by_prompt(batch, kept, lambda rewards, _: _normalised(rewards, rewards))


def over_all(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """(r - mean) / (std + 1e-4) with mean and std over all n rollouts of the prompt."""
    return _by_prompt(batch, kept, _normalised)


def rloo(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """r minus the mean of the other kept rollouts of the prompt (arXiv 2402.14740)."""

    def leave_one_out(rewards: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        count = rewards.shape[1]
        return (rewards - rewards.mean(dim=1, keepdim=True)) * count / max(1, count - 1)

    return _by_prompt(batch, kept, leave_one_out)


def dr_grpo(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """r minus the mean of the kept of the prompt, no std (arXiv 2503.20783)."""
    return _by_prompt(batch, kept, lambda rewards, _: rewards - rewards.mean(dim=1, keepdim=True))


def gdpo(batch: Batch, kept: np.ndarray) -> np.ndarray:
    """Each reward function normalised over the kept of a prompt, then the weighted sum
    (arXiv 2601.05242). Without by_function the same as `kept`."""
    parts = batch.by_function or {"rewards": batch.rewards}
    return sum(
        batch.weights.get(name, 1.0) * over_kept(Batch(rewards=rewards), kept)
        for name, rewards in parts.items()
    )


ADVANTAGES: dict[str, Advantage] = {
    "kept": over_kept,
    "all": over_all,
    "rloo": rloo,
    "dr_grpo": dr_grpo,
    "gdpo": gdpo,
}


def find(name: str) -> Advantage:
    """The function of this name: a key of ADVANTAGES or path/to/file.py:function."""
    if functions.is_path(name):
        return functions.load("advantage.name", name)
    if name not in ADVANTAGES:
        raise ValueError(f"advantage {name!r} is unknown; one of {', '.join(ADVANTAGES)}")
    return ADVANTAGES[name]


def checked(advantages: np.ndarray, count: int) -> np.ndarray:
    """The advantages as an array; ValueError unless they are `count` finite numbers."""
    found = np.asarray(advantages)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise ValueError(
            f"the advantage function returned shape {found.shape}, or numbers that are not finite; "
            f"({count},) finite numbers are required, one per kept rollout"
        )
    return found


def _by_prompt(
    batch: Batch,
    kept: np.ndarray,
    formula: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> np.ndarray:
    """`formula` on the kept (prompts, size) and all (prompts, n) rewards of prompts that keep
    equally many. One kept rollout, or equal rewards, carry no signal: advantage 0."""
    rewards = np.asarray(batch.rewards)
    if rewards.dtype.kind != "f":
        rewards = rewards.astype(np.float64)
    advantages = np.zeros(len(kept), dtype=rewards.dtype)
    for places, prompts in _groups(np.asarray(kept), batch.shape[1]):
        chosen = rewards.reshape(-1)[np.asarray(kept)[places]]
        found = formula(torch.from_numpy(chosen), torch.from_numpy(rewards[prompts])).numpy()
        equal = np.ptp(chosen, axis=1, keepdims=True) == 0
        advantages[places] = np.where(equal, 0, found)
    return advantages


def _groups(kept: np.ndarray, n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each size of group: (prompts, size) places in `kept`, and (prompts,) prompt numbers."""
    prompts, starts, sizes = np.unique(kept // n, return_index=True, return_counts=True)
    for size in np.unique(sizes):
        same = sizes == size
        yield starts[same, None] + np.arange(size), prompts[same]


def _normalised(rewards: torch.Tensor, over: torch.Tensor) -> torch.Tensor:
    """(rewards - mean) / (std + 1e-4), rows apart, statistics over `over`; TRL's operations."""
    mean = torch.nanmean(over, dim=1, keepdim=True)
    variance = torch.nanmean((over - mean) ** 2, dim=1, keepdim=True)
    count = over.shape[1]
    std = torch.sqrt(variance * (count / max(1, count - 1)))
    return (rewards - mean) / (std + EPSILON)
