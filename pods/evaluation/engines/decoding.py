"""Prompts -> token ids, in one batch: a random stream for every row, finished rows dropped.

transformers' generate keeps computing for finished rows until the last one ends, and draws all rows
from one generator, so that a completion would depend on the others in its batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, TopKLogitsWarper, TopPLogitsWarper

from pods.evaluation.engines import Sampling

ALIVE = 0.8  # below this share of unfinished rows the batch is cut down: cutting copies the cache


class Draw:
    """Next tokens by inverse CDF: one uniform number per row and step decides."""

    def __init__(self, sampling: Sampling, seeds: Sequence[int], device: Any) -> None:
        self._temperature = sampling.temperature
        self._narrow = []
        if sampling.top_k > 0:
            self._narrow.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            self._narrow.append(TopPLogitsWarper(sampling.top_p))
        draws = [np.random.default_rng(seed).random(sampling.max_tokens) for seed in seeds]
        self._draws = torch.from_numpy(np.stack(draws)).float().to(device)  # (rows, max_tokens)

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor, step: int) -> torch.Tensor:
        """(len(rows), vocabulary) -> (len(rows),); `rows`: which of the batch are left."""
        if self._temperature == 0:
            return logits.argmax(dim=-1)
        scores = logits.float() / self._temperature
        for warper in self._narrow:
            scores = warper(None, scores)
        cumulative = scores.softmax(dim=-1).cumsum(dim=-1)
        total = cumulative[:, -1:]  # rounding leaves it off 1
        # Below the total, and right=True: a token of probability 0 is never the one.
        point = self._draws[rows, step, None] * total
        point = torch.minimum(point, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(cumulative, point, right=True)[:, 0]


@torch.inference_mode()
def decode(
    model: Any, prompts: Sequence[Sequence[int]], draw: Draw, max_tokens: int, stops: Sequence[int]
) -> list[list[int]]:
    """The completion of every prompt, the stop token included where one came."""
    ids, mask = pad_left(prompts, model.device)
    positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
    stop = torch.tensor(stops, device=model.device)
    rows = torch.arange(len(prompts), device=model.device)  # which of the batch are left
    done: list[list[int]] = [[] for _ in prompts]
    cache = DynamicCache(config=model.config)
    for step in range(max_tokens):
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        tokens = draw(logits, rows, step)
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            done[row].append(token)
        alive = ~torch.isin(tokens, stop)
        if not alive.any():
            break
        ids, positions = tokens[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        if alive.float().mean() < ALIVE:
            keep = alive.nonzero()[:, 0]
            rows, ids, positions, mask = rows[keep], ids[keep], positions[keep], mask[keep]
            cache.batch_select_indices(keep)
    return [upto_stop(row, stops) for row in done]


def pad_left(prompts: Sequence[Sequence[int]], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, (rows, longest); generation goes on at the right."""
    width = max(map(len, prompts))
    ids = torch.zeros((len(prompts), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


def upto_stop(tokens: list[int], stops: Sequence[int]) -> list[int]:
    """What comes after the stop token was only computed along with its batch."""
    end = next((i + 1 for i, token in enumerate(tokens) if token in stops), None)
    return tokens[:end]
