"""Prompts -> token ids, in one batch: one prefill a prompt, a random stream for every completion.

transformers' generate computes finished rows until the last one ends, prefills each completion, and
samples all rows from one generator: a completion would depend on the others in its batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.functional import embedding, linear, pad, scaled_dot_product_attention, silu
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    LlamaForCausalLM,
    Qwen2ForCausalLM,
)
from transformers import PreTrainedModel as Model
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.generation import TopKLogitsWarper, TopPLogitsWarper
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from pods.config.errors import RunFailed
from pods.engines import Completion, Request, Sampling

COMPACT_BELOW = 0.8  # finished rows are removed below this share of others: it copies the cache
BLOCK = 64  # tokens by which the cache grows
GROUPED = "pods_grouped_sdpa"  # a name in transformers' table of attention functions


class TokenSampler:
    """Next tokens by inverse CDF: one uniform number for each row and step decides."""

    def __init__(self, sampling: Sampling, seeds: Sequence[int], device: torch.device) -> None:
        self._greedy = sampling.temperature == 0
        self._warpers = []
        if sampling.top_k > 0:
            self._warpers.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            self._warpers.append(TopPLogitsWarper(sampling.top_p))
        # All numbers of a completion at once: they depend on its seed and on nothing else.
        numbers = [np.random.default_rng(seed).random(sampling.max_tokens) for seed in seeds]
        self._numbers = torch.from_numpy(np.stack(numbers)).float().to(device)  # (rows, max_tokens)

    def __call__(self, scores: torch.Tensor, rows: torch.Tensor, step: int) -> torch.Tensor:
        """(len(rows), vocabulary) logits over temperature -> tokens of these rows of the batch."""
        if self._greedy:
            return scores.argmax(dim=-1)
        for warper in self._warpers:
            scores = warper(None, scores)
        cumulative = scores.softmax(dim=-1).cumsum(dim=-1)
        total = cumulative[:, -1:]  # rounding leaves it off 1
        # Below the total, and right=True: a token of probability 0 is never sampled.
        point = self._numbers[rows, step, None] * total
        point = torch.minimum(point, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(cumulative, point, right=True)[:, 0]


def ended(
    tokens: torch.Tensor, rows: torch.Tensor, step: int, sampling: Sampling, tokenizer: Tokenizer
) -> torch.Tensor:
    """(len(rows),) whether these of the (completions, max_tokens) tokens end at `step`."""
    ends = torch.isin(tokens[rows, step], torch.tensor(sampling.ends, device=tokens.device))
    if not sampling.stop:
        return ends
    # b bytes span at most b tokens; one more, because decoders strip a first space.
    start = max(0, step - max(len(string.encode()) for string in sampling.stop))
    tails = tokenizer.batch_decode(tokens[rows, start : step + 1], skip_special_tokens=True)
    stops = [any(string in tail for string in sampling.stop) for tail in tails]
    return ends | torch.tensor(stops, device=tokens.device)


class GrowingLayer(DynamicLayer):
    """A cache layer with free places, so that adding a token copies only that token."""

    length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the new keys and values; returns all of them, (rows, heads, length, size)."""
        start = self.length
        end = start + key_states.shape[-2]
        self.length = end
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states
            self.values = value_states
        if end >= self.keys.shape[-2]:
            free = (0, 0, 0, BLOCK)  # places before and after: of the size, then of the length
            self.keys = pad(self.keys, free)
            self.values = pad(self.values, free)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """SDPA; for one new token the query heads that share a key head become its query positions.
    transformers copies keys and values for every query head: a quarter of the quickstart's time.

    query (rows, heads, length, size), key and value (rows, key heads, ...); the output is
    (rows, length, heads, size).
    """
    rows, heads, length, size = query.shape
    if length > 1 or settings.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    folded = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
    output = scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, scale=settings.get("scaling")
    )
    return output.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def speed_up(model: Model) -> Model:
    """The engine's own model with the attention above in place of SDPA; others stay as they are."""
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(GROUPED)
    return model


@contextmanager
def sped_up(model: Model) -> Iterator[Model]:
    """In this block a model in training has the attention above."""
    before = model.config._attn_implementation
    try:
        yield speed_up(model)
    finally:
        if model.config._attn_implementation != before:
            model.set_attn_implementation(before)


class LeanDecoder:
    """One new token a row through a Qwen2 or Llama of float32, by transformers' operations without
    its module calls, masks and cache bookkeeping, which take a third of the tiny policy's time. The
    logits are equal to the bit.
    """

    def __init__(self, model: Model, places: int) -> None:
        """places: the longest sequence of prompt and completion, in tokens."""
        body = model.model
        self._embeddings = body.embed_tokens.weight
        self._final_norm = body.norm.weight
        self._head = model.lm_head.weight
        self._epsilon = body.norm.variance_epsilon
        self._head_size = body.layers[0].self_attn.head_dim
        self._scaling = body.layers[0].self_attn.scaling
        self._layers = [
            (
                (layer.input_layernorm.weight, layer.post_attention_layernorm.weight),
                *[(m.weight, m.bias) for m in linear_layers(layer)],
            )
            for layer in body.layers
        ]
        positions = torch.arange(places, device=model.device)[None]
        cos, sin = body.rotary_emb(self._embeddings, positions)
        half = self._head_size // 2
        sin[..., :half].neg_()  # in place of the half of the vector that it is multiplied by
        self._cos, self._sin = cos[0], sin[0]  # (places, head size)

    @staticmethod
    def computes(model: Model) -> bool:
        """Whether the model is one of this family, without adapters beside its weights."""
        if type(model) not in (LlamaForCausalLM, Qwen2ForCausalLM):
            return False
        modules = [m for layer in model.model.layers for m in linear_layers(layer)]
        return (
            "forward" not in vars(model)  # replaced by accelerate, as for a mixed precision
            and model.dtype == torch.float32  # else a norm changes the type in between
            and model.config._attn_implementation == GROUPED
            and model.config.hidden_act == "silu"
            and model.model.rotary_emb.rope_type == "default"  # others may depend on the length
            and {type(m) for m in [*modules, model.lm_head]} == {torch.nn.Linear}
            and type(model.model.embed_tokens) is torch.nn.Embedding
            and len({p.device for p in model.parameters()}) == 1
        )

    def logits(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        layers: Sequence[GrowingLayer],
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """(rows, vocabulary) of the token after (rows, 1) ids at these positions, which enter the
        cache. mask: (rows, places up to now), 1 where a token is no padding."""
        rows, size = len(ids), self._head_size
        if mask is not None:  # added to the scores, once for all layers
            mask = torch.where(mask[:, None, None] == 1, 0.0, -torch.inf)
        cos = self._cos[positions][:, None]  # (rows, 1, 1, head size)
        sin = self._sin[positions][:, None]
        hidden = embedding(ids, self._embeddings)
        for weights, cache in zip(self._layers, layers, strict=True):
            (attention_norm, mlp_norm), q, k, v, o, gate, up, down = weights
            x = self._normed(hidden, attention_norm)
            query = linear(x, *q).view(rows, -1, 1, size)
            key = linear(x, *k).view(rows, -1, 1, size)
            value = linear(x, *v).view(rows, -1, 1, size)
            query = query * cos + query.roll(size // 2, -1) * sin
            key = key * cos + key.roll(size // 2, -1) * sin
            keys, values = cache.update(key, value)
            folded = query.view(rows, keys.shape[1], -1, size)  # see grouped_attention
            attended = scaled_dot_product_attention(
                folded, keys, values, attn_mask=mask, scale=self._scaling
            )
            hidden = hidden + linear(attended.view(rows, 1, -1), *o)
            x = self._normed(hidden, mlp_norm)
            hidden = hidden + linear(silu(linear(x, *gate)) * linear(x, *up), *down)
        return linear(self._normed(hidden, self._final_norm), self._head)[:, -1]

    def _normed(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMSNorm over the last dimension."""
        variance = hidden.pow(2).mean(-1, keepdim=True)
        return weight * (hidden * torch.rsqrt(variance + self._epsilon))


def linear_layers(layer: torch.nn.Module) -> list[torch.nn.Module]:
    """Of a transformer layer: query, key, value, output; gate, up, down."""
    attention, mlp = layer.self_attn, layer.mlp
    return [
        *(attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj),
        *(mlp.gate_proj, mlp.up_proj, mlp.down_proj),
    ]


class NextInput:
    """The model's next input: tokens, positions and mask of each row, and the cache before them."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], new_tokens: int
    ) -> None:
        self._model = model
        padded = tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt")
        padded = padded.to(model.device)
        self._ids = padded.input_ids
        self._seen = self._ids.shape[1]  # tokens up to the end of the next input
        self._padded = not padded.attention_mask.all()
        self._mask = pad(padded.attention_mask, (0, new_tokens), value=1)  # (rows, places): no pad
        self._positions = self._mask[:, : self._seen].cumsum(dim=-1).sub(1).clamp(min=0)
        self._cache = DynamicCache(config=model.config)
        for i, layer in enumerate(self._cache.layers):
            if type(layer) is DynamicLayer:  # not one with a sliding window
                self._cache.layers[i] = GrowingLayer()
        self._lean = None
        grows = all(isinstance(layer, GrowingLayer) for layer in self._cache.layers)
        if grows and LeanDecoder.computes(model):
            self._lean = LeanDecoder(model, self._mask.shape[1])

    def logits(self) -> torch.Tensor:
        """(rows, vocabulary) of the token after the input, which enters the cache."""
        mask = self._mask[:, : self._seen] if self._padded else None
        if self._lean is not None and self._ids.shape[1] == 1:
            return self._lean.logits(self._ids, self._positions, self._cache.layers, mask)
        return self._model(
            input_ids=self._ids,
            attention_mask=mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]

    def append(self, sampled: torch.Tensor) -> None:
        """(rows,) tokens become the next input."""
        self._ids = sampled[:, None]
        self._positions = self._positions[:, -1:] + 1
        self._seen += 1

    def select(self, rows: torch.Tensor) -> None:
        """Keep these rows, in this order; a row named twice is copied."""
        self._ids = self._ids[rows]
        self._mask = self._mask[rows]
        self._positions = self._positions[rows]
        self._cache.batch_select_indices(rows)


@torch.inference_mode()
def decode(
    model: Model,
    tokenizer: Tokenizer,
    requests: Sequence[Request],
    sampling: Sampling,
    logprobs: bool,
) -> list[Completion]:
    """One completion for each seed of each request, in their order.

    sampling.ends and sampling.stop end a completion, else its length does. logprobs: with the
    log-probability of each token under the temperature, before top-k and top-p. Raises RunFailed
    if the policy's probabilities are not finite.
    """
    device = model.device
    seeds = [seed for request in requests for seed in request.seeds]
    sampler = TokenSampler(sampling, seeds, device)
    prompts = [request.prompt for request in requests]
    batch = NextInput(model, tokenizer, prompts, sampling.max_tokens)
    rows = torch.arange(len(seeds), device=device)  # the completions still in the batch
    unfinished = torch.ones_like(rows, dtype=torch.bool)
    lengths = torch.zeros_like(rows)
    tokens = torch.zeros((len(seeds), sampling.max_tokens), dtype=torch.long, device=device)
    token_logprobs = torch.zeros(tokens.shape, device=device)
    for step in range(sampling.max_tokens):
        logits = batch.logits()
        if step == 0 and len(seeds) > len(requests):
            # One row a prompt becomes one row a completion, behind the prefill.
            prompt_of = [i for i, request in enumerate(requests) for _ in request.seeds]
            logits = logits[prompt_of]
            batch.select(torch.tensor(prompt_of, device=device))
        scores = logits.float() / (sampling.temperature or 1.0)
        if not scores.max().isfinite():  # the largest of a row is NaN if any is
            raise RunFailed(  # no EngineError, at which a run saves its weights
                "the policy's probabilities are not finite: its weights overflowed; "
                "lower optimizer.learning_rate, or resume from an earlier checkpoint"
            )
        sampled = sampler(scores, rows, step)
        tokens[rows, step] = sampled
        if logprobs:
            of_sampled = scores.log_softmax(dim=-1).gather(1, sampled[:, None])
            token_logprobs[rows, step] = of_sampled[:, 0]
        lengths[rows] += unfinished
        unfinished &= ~ended(tokens, rows, step, sampling, tokenizer)
        left = int(unfinished.sum())
        if not left:
            break
        batch.append(sampled)
        if left < COMPACT_BELOW * len(rows):
            batch.select(unfinished.nonzero()[:, 0])
            rows = rows[unfinished]
            unfinished = unfinished[unfinished]
    # One transfer from the device for all completions.
    ids = tokens.tolist()
    values = token_logprobs.tolist()
    clipped = set(rows[unfinished].tolist())
    return [
        Completion(ids[i][:length], i in clipped, values[i][:length] if logprobs else None)
        for i, length in enumerate(lengths.tolist())
    ]
