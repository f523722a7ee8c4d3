"""Transformers as the engine: runs anywhere, on its own decode loop (pods/engines/decoding.py).

In float32 the adapter is added to a copy of the weights that it changes, which halves the time of
generating. The adapter stays beside the weights, as it was trained, where the sum would be another
policy: in 16 bits it would lose the adapter's small digits, quantised weights cannot hold it, and
weights that another layer shares would change there too.
No batch crosses a work, so a resumed evaluation meets the same batches and ends with the same file.
    uv run train.py engine=transformers
    uv run evaluate_run.py run=<run> engine=transformers
"""

import copy
import gc
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, PeftType
from peft.tuners.lora import LoraLayer

from pods.config.keys import TrainConfig
from pods.engines import Advance, Completion, Limits, Live, Sampling, Weights, Work, is_adapter
from pods.engines.decoding import Draw, Ends, decode, speed_up
from pods.models import policy


class TransformersEngine(AbstractContextManager):
    def __init__(
        self, config: TrainConfig, tokenizer: Any, sampling: Sampling, limits: Limits
    ) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._sampling, self._size = sampling, limits.max_sequences
        tokens = sampling.ends or policy.end_tokens(config.model.path, tokenizer)
        self._ends = Ends(tokens, sampling.stop, tokenizer)
        self._live: Sum | None = None
        self._loaded: Any = None  # the model from `_path` on disk
        self._path = ""
        self._disk: Any = None  # `_loaded` with the adapter of `_weights`, if it is one
        self._weights: Path | None = None

    def generate(
        self, works: Iterable[Work], *, logprobs: bool = False, advance: Advance | None = None
    ) -> Iterator[tuple[Work, list[list[Completion]]]]:
        for work in works:
            with self._serving(work.weights) as model:
                done = self._complete(model, work, logprobs, advance)
            yield work, done

    def _complete(
        self, model: Any, work: Work, logprobs: bool, advance: Advance | None
    ) -> list[list[Completion]]:
        requests = work.requests
        # By length: little of a batch is padding; the longest shows a lack of memory at once.
        order = sorted(range(len(requests)), key=lambda i: -len(requests[i].prompt))
        rows = [(i, seed) for i in order for seed in requests[i].seeds]
        size = self._size or max(1, len(rows))
        ends = Ends([]) if work.full_length else self._ends
        done: list[list[Completion]] = [[] for _ in requests]
        for start in range(0, len(rows), size):
            chunk = rows[start : start + size]
            asked = list(dict.fromkeys(i for i, _ in chunk))
            prompts = [requests[i].prompt for i in asked]
            groups = [asked.index(i) for i, _ in chunk]
            draw = Draw(self._sampling, [seed for _, seed in chunk], model.device)
            completions = decode(model, prompts, groups, draw, ends, logprobs)
            for (i, _), completion in zip(chunk, completions, strict=True):
                done[i].append(completion)
            if advance:
                advance(len(chunk))
        return done

    @contextmanager
    def _serving(self, weights: Weights) -> Iterator[Any]:
        """The model that decodes for `weights`; a live one is in training mode again afterwards."""
        if not isinstance(weights, Live):
            yield self._from_disk(weights)
        elif can_be_added(weights.model):
            if self._live is None or self._live.source is not weights.model:
                self._live = Sum(weights.model)
            yield self._live.refreshed(weights.version)
        else:
            training = weights.model.training
            try:
                yield plain(weights.model.eval())
            finally:
                weights.model.train(training)

    def _from_disk(self, weights: Path | None) -> Any:
        """The base model, the base with a checkpoint's adapter, or a full checkpoint."""
        if self._disk is None or weights != self._weights:
            self._disk = None  # free the one before
            adapter = weights if weights and is_adapter(weights) else None
            self._load(self._config.model.path if adapter or not weights else str(weights))
            self._disk = self._attach(adapter) if adapter else self._loaded
            self._weights = weights
        return self._disk

    def _load(self, path: str) -> None:
        if isinstance(self._loaded, PeftModel):
            self._loaded = self._loaded.unload()  # base weights were never touched
        if self._loaded is None or path != self._path:
            self._loaded = None  # free the one before
            model = self._config.model.model_copy(update={"path": path})
            config = self._config.model_copy(update={"model": model})
            self._loaded = speed_up(policy.load_transformers(config, self._tokenizer).model.eval())
            self._path = path

    def _attach(self, adapter: Path) -> Any:
        self._loaded = PeftModel.from_pretrained(self._loaded, adapter).eval()
        if can_be_added(self._loaded):
            return Sum(self._loaded).refreshed(adapter)
        return plain(self._loaded)

    def __exit__(self, *error: Any) -> None:
        self._live = self._loaded = self._disk = None
        gc.collect()
        torch.cuda.empty_cache()


class Sum:
    """A plain copy of a LoRA model whose adapted layers hold base weight + adapter; it shares every
    other weight with `source`, which is never changed."""

    def __init__(self, source: PeftModel) -> None:
        self.source, self._version = source, None
        memo: dict[int, Any] = {id(p): p for p in source.parameters()}  # shared, not copied
        self._layers = []
        for layer in lora_layers(source):
            base = layer.get_base_layer()
            others = {id(p): p for p in base.parameters() if p is not base.weight}
            memo[id(layer)] = copied = copy.deepcopy(base, others)
            self._layers.append((layer, copied))
        self.model = speed_up(copy.deepcopy(plain(source), memo).eval())

    @torch.no_grad()
    def refreshed(self, version: Hashable) -> Any:
        """The copy with the adapter as it is now, added unless this version already was."""
        if version != self._version:
            name = self.source.active_adapter
            for layer, copied in self._layers:
                copied.weight.copy_(layer.get_base_layer().weight + layer.get_delta_weight(name))
            self._version = version
        return self.model


def can_be_added(model: Any) -> bool:
    """Whether base weight + adapter, rounded to the weights' own type, is still the same policy."""
    if not isinstance(model, PeftModel):
        return False
    config = model.peft_config[model.active_adapter]
    if config.peft_type != PeftType.LORA or config.modules_to_save or config.use_dora:
        return False
    users = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    return all(
        isinstance(base, torch.nn.Linear | torch.nn.Embedding)
        and base.weight.dtype == torch.float32  # quantised weights are whole numbers
        and users[id(base.weight)] == 1
        for base in (layer.get_base_layer() for layer in lora_layers(model))
    )


def lora_layers(model: PeftModel) -> list[LoraLayer]:
    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def plain(model: Any) -> Any:
    """The transformers model, with PEFT's layers in it where there are any."""
    return model.get_base_model() if isinstance(model, PeftModel) else model
