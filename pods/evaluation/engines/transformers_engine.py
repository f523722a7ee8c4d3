"""Transformers as the engine: runs anywhere; adapters are switched in place on one base model.

In float32 an adapter is added to the base weights, which makes generating 1.3 times faster, and
taken out again by a copy of them in the host's memory. The adapter stays beside them, as it was
trained, where the sum would be another policy: in 16 bits it would lose the adapter's small digits,
quantised weights cannot hold it, and weights that another layer shares would change there too.
No batch crosses a unit, so a resumed evaluation meets the same batches and ends with the same file.
    uv run evaluate_run.py run=<run> backend=transformers
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from transformers import GenerationConfig

from pods import policy
from pods.config import TrainConfig
from pods.evaluation.engines import Advance, Completion, Sampling, Unit, is_adapter
from pods.evaluation.engines.decoding import Draw, decode

SLOT = "policy"  # the one adapter that is attached at a time


class TransformersEngine:
    def __init__(self, config: TrainConfig, sampling: Sampling, batch_size: int) -> None:
        policy.set_threads(config.backend.threads)
        self._config, self._sampling, self._batch_size = config, sampling, batch_size
        self._tokenizer = policy.load_tokenizer(config.model.path, config.model.pad_token)
        self._model = self._loaded(config.model.path)
        self._stops = stop_tokens(self._tokenizer, self._model.generation_config)
        self._weights: Path | None = None
        self._covered: list[tuple[torch.Tensor, torch.Tensor]] = []  # (weights now, the base's)

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
                tokens = self._decode(prompts, [unit.seeds[i] for i in rows])
                for row, ids in zip(rows, tokens, strict=True):
                    cut = ids[-1] not in self._stops
                    done[row] = finish(self._tokenizer, ids, truncated=cut)
                advance(len(rows))
            yield unit, [done[i] for i in range(len(order))]

    def _decode(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[list[int]]:
        draw = Draw(self._sampling, seeds, self._model.device)
        return decode(self._model, prompts, draw, self._sampling.max_tokens, self._stops)

    def _switch_to(self, weights: Path | None) -> None:
        if weights == self._weights:
            return
        if isinstance(self._model, PeftModel):
            self._model = self._model.unload()  # base weights were never touched
        elif self._covered:
            for now, base in self._covered:
                now.copy_(base)
            self._covered = []
        elif self._weights is not None:  # a full-parameter checkpoint stands where the base was
            self._model = self._loaded(self._config.model.path)
        if weights is not None and is_adapter(weights):
            self._model = self._attached(weights)
        elif weights is not None:
            self._model = self._loaded(str(weights))
        self._weights = weights

    def _attached(self, adapter: Path) -> Any:
        model = PeftModel.from_pretrained(self._model, adapter, SLOT).eval()
        replaces = model.peft_config[SLOT].modules_to_save  # whole layers, which no sum takes out
        if model.dtype != torch.float32 or self._config.model.load_in_4bit or replaces:
            return model
        layers = [m.get_base_layer() for m in model.modules() if isinstance(m, LoraLayer)]
        touched = [p for layer in layers for p in layer.parameters()]
        users = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
        if any(users[id(p)] > 1 for p in touched):
            return model
        self._covered = [(p.data, p.data.to("cpu", copy=True)) for p in touched]
        return model.merge_and_unload()

    def _loaded(self, path: str) -> Any:
        self._model = None  # free the one before
        config = replace(self._config, model=replace(self._config.model, path=path))
        return self._load(config).eval()

    def _load(self, config: TrainConfig) -> Any:
        return policy.load_transformers(config, self._tokenizer).model


def finish(tokenizer: Any, token_ids: Sequence[int], truncated: bool) -> Completion:
    text = tokenizer.decode(token_ids, skip_special_tokens=True)
    return Completion(text, len(token_ids), truncated)


def stop_tokens(tokenizer: Any, generation_config: GenerationConfig) -> list[int]:
    """The tokenizer's end of sequence, then those the model itself names (Llama has several)."""
    named = generation_config.eos_token_id
    named = named if isinstance(named, list) else [named]
    stops = dict.fromkeys(i for i in [tokenizer.eos_token_id, *named] if i is not None)
    return list(stops)
