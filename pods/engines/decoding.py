"""Prompts -> token ids, in one batch: one prefill a prompt, a random stream for every completion.

transformers' generate keeps computing for finished rows until the last one ends, prefills the
prompt of a group once for each completion, and draws all rows from one generator, so that a
completion would depend on the others in its batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from pods.engines import Completion, Sampling

ALIVE = 0.8  # below this share of unfinished rows the batch is cut down: cutting copies the cache
BLOCK = 64  # tokens by which the cache grows
GROUPED = "pods_grouped_sdpa"  # a name in transformers' table of attention functions


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

    def __call__(self, scores: torch.Tensor, rows: torch.Tensor, step: int) -> torch.Tensor:
        """(len(rows), vocabulary) logits over temperature -> (len(rows),) tokens.

        rows: which of the batch are left.
        """
        if self._temperature == 0:
            return scores.argmax(dim=-1)
        for warper in self._narrow:
            scores = warper(None, scores)
        cumulative = scores.softmax(dim=-1).cumsum(dim=-1)
        total = cumulative[:, -1:]  # rounding leaves it off 1
        # Below the total, and right=True: a token of probability 0 is never drawn.
        point = self._draws[rows, step, None] * total
        point = torch.minimum(point, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(cumulative, point, right=True)[:, 0]


@dataclass(frozen=True)
class Ends:
    """When a completion is finished, beside its length limit."""

    tokens: Sequence[int]
    strings: tuple[str, ...] = ()
    tokenizer: Any = None  # reads the strings

    def seen(self, ids: torch.Tensor, step: int) -> torch.Tensor:
        """(rows,) whether the tokens (rows, max_tokens) up to `step` end in a stop string."""
        # b bytes span at most b tokens; one more, because decoders strip a first space.
        start = max(0, step - max(len(s.encode()) for s in self.strings))
        tails = self.tokenizer.batch_decode(ids[:, start : step + 1], skip_special_tokens=True)
        found = [any(string in tail for string in self.strings) for tail in tails]
        return torch.tensor(found, device=ids.device)


class GrowingLayer(DynamicLayer):
    """A cache layer with free places, so that a new token copies itself alone."""

    length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        end = self.length + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = _longer(key_states), _longer(value_states)
        else:
            if end > self.keys.shape[-2]:
                self.keys, self.values = _longer(self.keys), _longer(self.values)
            self.keys[:, :, self.length : end] = key_states
            self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length


def _longer(states: torch.Tensor) -> torch.Tensor:
    rows, heads, _, size = states.shape
    return torch.cat([states, states.new_empty(rows, heads, BLOCK, size)], dim=2)


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """SDPA; for one new token the query heads that share a key head become its query positions.

    transformers copies every key and value once a query head where a mask is given: a quarter of
    the time of the quickstart's decoding.
    """
    rows, heads, length, size = query.shape
    if length > 1 or settings.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    folded = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
    output = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, scale=settings.get("scaling")
    )
    return output.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def speed_up(model: Any) -> Any:
    """The engine's own model with the attention above in place of SDPA; others stay as they are."""
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(GROUPED)
    return model


@torch.inference_mode()
def decode(
    model: Any,
    prompts: Sequence[Sequence[int]],
    groups: Sequence[int],
    draw: Draw,
    sampling: Sampling,
    ends: Ends,
    logprobs: bool,
) -> list[Completion]:
    """One completion for each entry of `groups`, which names its prompt by position."""
    device = model.device
    ids, mask, width = pad_left(prompts, sampling.max_tokens, device)
    positions = mask[:, :width].cumsum(dim=-1).sub(1).clamp(min=0)
    padded = not bool(mask.all())
    stop = torch.tensor(ends.tokens, device=device)
    rows = torch.arange(len(groups), device=device)  # which of the completions are left
    alive = torch.ones(len(groups), dtype=torch.bool, device=device)  # which of those go on
    tokens = torch.zeros((len(groups), sampling.max_tokens), dtype=torch.long, device=device)
    kept = torch.zeros(tokens.shape, device=device) if logprobs else None
    lengths = torch.zeros(len(groups), dtype=torch.long, device=device)
    cache = DynamicCache(config=model.config)
    cache.layers = [GrowingLayer() if type(x) is DynamicLayer else x for x in cache.layers]
    for step in range(sampling.max_tokens):
        logits = model(
            input_ids=ids,
            attention_mask=mask[:, : width + step] if padded else None,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        if step == 0 and list(groups) != list(range(len(prompts))):
            prompt_of = torch.tensor(groups, device=device)
            logits, positions, mask = logits[prompt_of], positions[prompt_of], mask[prompt_of]
            cache.batch_select_indices(prompt_of)
        scores = logits.float() / (sampling.temperature or 1.0)
        drawn = draw(scores, rows, step)
        tokens[rows, step] = drawn
        if kept is not None:
            kept[rows, step] = scores.log_softmax(dim=-1).gather(1, drawn[:, None])[:, 0]
        lengths[rows] += alive
        alive &= ~torch.isin(drawn, stop)
        if ends.strings:
            alive &= ~ends.seen(tokens[rows], step)
        left = int(alive.sum())
        if not left:
            break
        ids, positions = drawn[:, None], positions[:, -1:] + 1
        if left < ALIVE * len(rows):
            keep = alive.nonzero()[:, 0]
            rows, alive, ids = rows[keep], alive[keep], ids[keep]
            positions, mask = positions[keep], mask[keep]
            cache.batch_select_indices(keep)
    clipped = set(rows[alive].tolist())
    ids, counts = tokens.tolist(), lengths.tolist()
    likely = kept.tolist() if kept is not None else None
    return [
        Completion(ids[i][:count], i in clipped, likely and likely[i][:count])
        for i, count in enumerate(counts)
    ]


def pad_left(
    prompts: Sequence[Sequence[int]], more: int, device: Any
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Token ids (rows, width), attention mask (rows, width + more), width; pads on the left."""
    width = max(map(len, prompts))
    ids = torch.zeros((len(prompts), width), dtype=torch.long)
    mask = torch.ones((len(prompts), width + more), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, : width - len(prompt)] = 0
    return ids.to(device), mask.to(device), width
