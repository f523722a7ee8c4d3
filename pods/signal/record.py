"""Rollouts of one policy with the gradient of each, in one file.

The trainer draws, scores and computes the loss as in training; the gradient is that of its loss on
one rollout at advantage 1. Memory: a micro-batch of one row, and a sketch of each gradient.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from tqdm import tqdm

from pods.batch import Prompt, Rollout, mean, prompt_of
from pods.seam import Tensors
from pods.signal.pool import Pool
from pods.signal.sketch import Sketch
from pods.trainer import PodsTrainer

SAVE_SECONDS = 10.0  # between two writes of the file: a kill costs at most these


def prompts_of(dataset: Dataset, count: int, seed: int) -> list[Prompt]:
    """Questions of the data set, at random; more of them go on with the same ones."""
    order = np.random.default_rng(seed).permutation(len(dataset))
    return [prompt_of(dataset[int(place)], int(place)) for place in order[:count]]


def record(
    trainer: PodsTrainer,
    prompts: list[Prompt],
    pool: Pool,
    path: Path,
    at_once: int,
) -> Pool:
    """The pool with the rollouts of these prompts, of which the first may be in it; saved in `path`
    as it grows. at_once: questions whose rollouts are drawn together."""
    count, size = pool.sketches.shape[1:]
    elements = trainer.get_num_trainable_parameters()
    sketch = Sketch(elements, size, trainer.accelerator.device)
    saved = time.monotonic()
    with tqdm(prompts, "rollouts and gradients", unit=" questions", disable=None) as bar:
        bar.update(len(pool))
        while len(pool) < len(prompts):
            batch = prompts[len(pool) : len(pool) + at_once]
            wanted = [prompt for prompt in batch for _ in range(count)]
            rollouts = trainer.draw(wanted, [*range(count)] * len(batch))
            scores = trainer.score(wanted, rollouts)
            for first, prompt in zip(range(0, len(wanted), count), batch, strict=True):
                group = slice(first, first + count)
                gradients = row_gradients(trainer, prompt, rollouts[group], scores[group])
                sketches = [-sketch(gradient).cpu().numpy() for gradient in gradients]
                append(pool, prompt, rollouts[group], scores[group], np.stack(sketches))
                bar.update()
                if time.monotonic() - saved > SAVE_SECONDS or len(pool) == len(prompts):
                    pool.save(path)
                    saved = time.monotonic()
    return pool


def append(
    pool: Pool,
    prompt: Prompt,
    rollouts: list[Rollout],
    scores: np.ndarray,
    sketches: np.ndarray,
) -> None:
    """Add the rollouts of a question to the pool."""
    completions = [rollout.completion for rollout in rollouts]
    values = {
        "scores": scores,
        "lengths": [len(completion.token_ids) for completion in completions],
        "clipped": [completion.clipped for completion in completions],
        "logprobs": [mean(completion.logprobs or [None]) for completion in completions],
        "sketches": sketches,
    }
    pool.rows.append({"id": str(prompt), **prompt.row})
    for name, value in values.items():
        before = getattr(pool, name)
        setattr(pool, name, np.concatenate([before, np.asarray(value, before.dtype)[None]]))


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
    for place, rollout in enumerate(rollouts):
        trainer.model.zero_grad()
        if not (trainer.mask_truncated_completions and rollout.completion.clipped):
            row = one_row(batch, place)
            with trainer.accelerator.autocast():
                loss = trainer.compute_loss(trainer.model_wrapped, row)
            trainer.accelerator.backward(loss)
        yield [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    trainer.model.zero_grad()


def one_row(batch: Tensors, place: int) -> Tensors:
    """A row of TRL's batch as a batch of its own, without the padding of its completion."""
    width = batch["completion_mask"].shape[1]
    length = int(batch["completion_mask"][place].sum())
    row = {}
    for name, values in batch.items():
        if getattr(values, "ndim", 0) == 0:
            continue
        row[name] = values[place : place + 1]
        if values.ndim == 2 and values.shape[1] == width and not name.startswith("prompt"):
            row[name] = row[name][:, :length]
    row["advantages"] = torch.ones_like(row["advantages"])
    row["num_items_in_batch"] = row["completion_mask"].sum()
    return row
