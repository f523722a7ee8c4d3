"""Rollouts of one policy with the gradient of each, in one file.

The trainer samples, scores and computes the loss as in training; the gradient is that of its loss
on one rollout at advantage 1. Memory: a micro-batch of one row, and a sketch of each gradient.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from tqdm import tqdm

from pods.batch import Prompt, Rollout, mean, prompt_of
from pods.signal.pool import Pool
from pods.signal.sketch import Sketch
from pods.trainer import PodsTrainer


def prompts_of(dataset: Dataset, count: int, seed: int) -> list[Prompt]:
    """Questions of the data set, at random; more of them go on with the same ones."""
    order = np.random.default_rng(seed).permutation(len(dataset))
    return [prompt_of(dataset[int(position)], int(position)) for position in order[:count]]


def record(
    trainer: PodsTrainer,
    prompts: list[Prompt],
    pool: Pool,
    path: Path,
    at_once: int,
) -> Pool:
    """The pool with the rollouts of these prompts, of which the first may be in it; saved in `path`
    as it grows. at_once: questions sampled together, after which the file is written."""
    count = pool.facts["rollouts"]
    elements = trainer.get_num_trainable_parameters()
    sketch = Sketch(elements, pool.facts["sketch"], trainer.accelerator.device)
    with tqdm(prompts, "rollouts and gradients", unit=" questions", disable=None) as bar:
        bar.update(len(pool.rows))
        while len(pool.rows) < len(prompts):
            batch = prompts[len(pool.rows) :][:at_once]
            wanted = [prompt for prompt in batch for _ in range(count)]
            rollouts = trainer.sample(wanted, [*range(count)] * len(batch))
            scores = trainer.score(wanted, rollouts)
            for first, prompt in zip(range(0, len(wanted), count), batch, strict=True):
                group = slice(first, first + count)
                gradients = row_gradients(trainer, prompt, rollouts[group], scores[group])
                sketches = [-sketch(gradient).cpu().numpy() for gradient in gradients]
                texts = [rollout.completion for rollout in rollouts[group]]
                pool.rows.append({"id": str(prompt), **prompt.row})
                values = {
                    "scores": scores[group],
                    "lengths": np.array([len(text.token_ids) for text in texts]),
                    "clipped": np.array([text.clipped for text in texts]),
                    "logprobs": np.array([mean(text.logprobs or [None]) for text in texts]),
                    "sketches": np.stack(sketches),
                }
                for name, value in values.items():
                    pool.arrays[name].append(value)
                bar.update()
            pool.save(path)
    return pool


def row_gradients(
    trainer: PodsTrainer, prompt: Prompt, rollouts: list[Rollout], scores: np.ndarray
) -> Iterator[list[torch.Tensor]]:
    """The gradient of the trainer's loss on each rollout alone, at advantage 1, by parameter.

    The trainer must take all rollouts of a prompt as one micro-batch.
    """
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    texts = [prompt.row["prompt"]] * len(rollouts)
    batch = trainer.tensors(texts, rollouts, torch.as_tensor(scores))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    for position, rollout in enumerate(rollouts):
        trainer.model.zero_grad()
        if not (trainer.mask_truncated_completions and rollout.completion.clipped):
            row = {
                name: values[position : position + 1]
                for name, values in batch.items()
                if getattr(values, "ndim", 0) > 0
            }
            row["advantages"] = torch.ones_like(row["advantages"])
            row["num_items_in_batch"] = row["completion_mask"].sum()
            with trainer.accelerator.autocast():
                loss = trainer.compute_loss(trainer.model_wrapped, row)
            trainer.accelerator.backward(loss)
        yield [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    trainer.model.zero_grad()
