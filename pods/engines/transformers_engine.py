"""Transformers as the engine: runs anywhere; adapters are switched in place on one base model.

Every row draws from random numbers of its own, so a completion depends on its seed and not on its
batch; no batch crosses a unit, so a resumed evaluation meets the same batches.
    uv run evaluate_run.py run=<run> backend=transformers
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pods import policy
from pods.config import TrainConfig
from pods.engines import Advance, Completion, Sampling, Unit, is_adapter

SLOT = "policy"  # the one adapter that is attached at a time


class TransformersEngine:
    def __init__(
        self, config: TrainConfig, sampling: Sampling, batch_size: int, unsloth: bool = False
    ):
        policy.set_threads(config.backend.threads)
        self._config, self._sampling, self._batch_size = config, sampling, batch_size
        self._unsloth = unsloth
        self._tokenizer = policy.load_tokenizer(config.model.path, config.model.pad_token)
        self._model = self._load(config.model.path)
        self._stops = stop_tokens(self._tokenizer, self._model.generation_config)
        self._weights: Path | None = None

    def generate(
        self, units: Iterable[Unit], advance: Advance
    ) -> Iterator[tuple[Unit, list[Completion]]]:
        for unit in units:
            self._switch_to(unit.weights)
            # By length: little of a batch is padding; the longest shows a lack of memory at once.
            order = sorted(range(len(unit.prompts)), key=lambda i: (-len(unit.prompts[i]), i))
            done: dict[int, Completion] = {}
            for start in range(0, len(order), self._batch_size):
                rows = order[start : start + self._batch_size]
                prompts = [unit.prompts[i] for i in rows]
                seeds = [unit.seeds[i] for i in rows]
                done.update(zip(rows, self._batch(prompts, seeds), strict=True))
                advance(len(rows))
            yield unit, [done[i] for i in range(len(order))]

    def _switch_to(self, weights: Path | None) -> None:
        if weights == self._weights:
            return
        if isinstance(self._model, PeftModel):
            self._model = (
                self._model.unload()
            )  # takes its layers off; base weights were never touched
        elif self._weights is not None:  # a full-parameter checkpoint stands where the base was
            self._model = self._load(self._config.model.path)
        if weights is not None and is_adapter(weights):
            self._model = PeftModel.from_pretrained(self._model, weights, SLOT).eval()
        elif weights is not None:
            self._model = self._load(str(weights))
        self._weights = weights

    def _load(self, path: str) -> Any:
        self._model = None  # free the one before
        config = replace(self._config, model=replace(self._config.model, path=path))
        if self._unsloth:
            model = _load_with_unsloth(config, self._sampling)
        else:
            model = policy.load_transformers(config, self._tokenizer).model
        # Only the stop tokens of the model's own generation config are wanted: its repetition
        # penalty (Qwen's is 1.05) and its top-k would creep in where ours are unset.
        stops = model.generation_config.eos_token_id
        model.generation_config = GenerationConfig(eos_token_id=stops)
        return model.eval()

    @torch.inference_mode()
    def _batch(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Completion]:
        width = max(map(len, prompts))
        pad = (
            self._stops[0] if self._tokenizer.pad_token_id is None else self._tokenizer.pad_token_id
        )
        ids = torch.full((len(prompts), width), pad)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(
            prompts
        ):  # padded on the left: generation goes on at the right
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        device = self._model.device
        output = self._model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            logits_processor=self._processors(seeds, width, device),
            generation_config=GenerationConfig(
                max_new_tokens=self._sampling.max_tokens,
                do_sample=False,  # the processor below has drawn; what is left is an argmax
                eos_token_id=self._stops,
                pad_token_id=pad,
            ),
        )
        return [self._completion(row) for row in output[:, width:].tolist()]

    def _processors(self, seeds: Sequence[int], width: int, device: Any) -> LogitsProcessorList:
        sampling, chain = self._sampling, LogitsProcessorList()
        if sampling.temperature == 0:
            return chain
        chain.append(TemperatureLogitsWarper(float(sampling.temperature)))
        if sampling.top_k > 0:
            chain.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            chain.append(TopPLogitsWarper(sampling.top_p))
        draws = np.stack([np.random.default_rng(s).random(sampling.max_tokens) for s in seeds])
        chain.append(SeededDraw(torch.from_numpy(draws).float().to(device), width))
        return chain

    def _completion(self, row: list[int]) -> Completion:
        end = next((i + 1 for i, token in enumerate(row) if token in self._stops), None)
        return finish(self._tokenizer, row[:end], truncated=end is None)


class SeededDraw(LogitsProcessor):
    """Inverse-CDF sampling: one uniform number per row and step decides the token."""

    def __init__(self, draws: torch.Tensor, prompt_width: int):
        self._draws, self._prompt_width = draws, prompt_width  # (rows, max_tokens), in [0, 1)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        cumulative = scores.float().softmax(dim=-1).cumsum(dim=-1)  # (rows, vocabulary)
        draw = self._draws[:, input_ids.shape[1] - self._prompt_width, None]
        total = cumulative[:, -1:]  # rounding leaves it off 1
        # Below the total, and right=True: a token of probability 0 is never the one.
        point = torch.minimum(draw * total, torch.nextafter(total, torch.zeros_like(total)))
        token = torch.searchsorted(cumulative, point, right=True)
        return torch.full_like(scores, -torch.inf).scatter_(1, token, 0.0)


def finish(tokenizer: Any, token_ids: Sequence[int], truncated: bool) -> Completion:
    text = tokenizer.decode(token_ids, skip_special_tokens=True)
    return Completion(text, len(token_ids), truncated)


def stop_tokens(tokenizer: Any, generation_config: GenerationConfig) -> list[int]:
    """The tokenizer's end of sequence, then those the model itself names (Llama has several)."""
    named = generation_config.eos_token_id
    named = named if isinstance(named, list) else [named]
    stops = dict.fromkeys(i for i in [tokenizer.eos_token_id, *named] if i is not None)
    return list(stops)


def _load_with_unsloth(config: TrainConfig, sampling: Sampling) -> Any:
    from unsloth import FastLanguageModel

    model, _ = FastLanguageModel.from_pretrained(
        policy.locate(config.model.path),
        max_seq_length=sampling.max_prompt_length + sampling.max_tokens,
        load_in_4bit=config.model.load_in_4bit,
        dtype=getattr(torch, config.model.dtype),
    )
    FastLanguageModel.for_inference(model)
    return model
