"""How noisy the policy gradient is: squared norms of a half, a prompt and the whole step.

Noise enlarges the squared norm of a mean in proportion to one over its size, so the norms of means
of three sizes tell signal from noise (the simple noise scale of arXiv 1812.06162, appendix A).
Measured every `planner.gradient_noise_every` steps, between selection
and update, off the training clock; the update does not depend on it.
"""

import math
from typing import Any

import numpy as np
import torch

from pods import seam


def measure(trainer: Any, batch: dict[str, Any], m: int) -> dict[str, float]:
    """Squared gradient norms at the current weights, in one common unit.

    Args:
        batch: TRL's batch of P * m rows, those of one prompt side by side.
        m: kept rollouts of a prompt, even.

    Returns:
        gradient_noise/half: of the mean over half of a prompt's kept rollouts, mean over 2 P.
        gradient_noise/prompt: of the mean over a prompt's kept rollouts, mean over P.
        gradient_noise/step: of the mean over all P * m.
    """
    halves, prompts, whole = [], [], 0.0
    advantages = batch["advantages"].cpu().numpy()
    with seam.no_trace(trainer):
        for start in range(0, len(advantages), m):
            parts = balanced_halves(advantages[start : start + m])
            first, second = (gradient(trainer, batch, start + rows) for rows in parts)
            halves += [first.square().sum().item(), second.square().sum().item()]
            prompts.append((first.add_(second) / 2).square().sum().item())
            whole = whole + first / 2
    step = whole.square().sum().item() / len(prompts) ** 2
    names = ("half", "prompt", "step")
    values = (np.mean(halves), np.mean(prompts), step)
    return {f"gradient_noise/{n}": float(v) for n, v in zip(names, values, strict=True)}


def balanced_halves(advantages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of (m,) rows with advantages as equal as possible: ranks 0, 3, 4, 7 ... and 1, 2,
    5, 6 ... An unequal share of right rollouts would count as noise."""
    order = np.argsort(advantages, kind="stable")
    first = np.isin(np.arange(len(order)) % 4, (0, 3))
    return order[first], order[~first]


def gradient(trainer: Any, batch: dict[str, Any], rows: np.ndarray) -> torch.Tensor:
    """(parameters,) gradient of the loss on these rows, in equal parts of at most a micro-batch."""
    trainer.model.zero_grad()
    size = math.gcd(len(rows), trainer.args.per_device_train_batch_size)
    for part in torch.as_tensor(rows).split(size):
        chosen = {k: v[part.to(v.device)] if getattr(v, "ndim", 0) else v for k, v in batch.items()}
        trainer.accelerator.backward(trainer.compute_loss(trainer.model_wrapped, chosen))
    found = [p.grad.flatten().float() for p in trainer.model.parameters() if p.grad is not None]
    return torch.cat(found)
