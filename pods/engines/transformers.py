"""Transformers as the engine: runs anywhere, on its own decode loop (pods/engines/decoding.py).

In float32 the adapter is added to a copy of the weights that it changes, which halves the time of
generating. It stays beside them where the sum would be another policy: 16 bits would lose its small
digits, quantised weights cannot hold it, weights that another layer shares would change there too.
No batch crosses a work, so a resumed evaluation meets the same batches and ends with the same file.
"""

import copy
import gc
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, PeftType
from peft.tuners.lora import LoraLayer
from transformers import PreTrainedModel as Model
from transformers import PreTrainedTokenizerBase as Tokenizer

from pods.config.keys import TrainConfig
from pods.engines import Answers, Groups, Limits, LivePolicy, Request, Sampling, Weights, Work
from pods.engines.decoding import decode, speed_up
from pods.models import is_adapter, policy

NOTHING = LivePolicy(None, "nothing")


class TransformersEngine(AbstractContextManager):
    """Serves the policy in training, the base model and the checkpoints of a run in this process.

    It holds one model from the disk, and one copy of the newest policy that can be merged.
    """

    def __init__(
        self, config: TrainConfig, tokenizer: Tokenizer, sampling: Sampling, limits: Limits
    ) -> None:
        """limits.max_sequences: completions in one batch; the other limits are vLLM's."""
        self._config = config
        self._tokenizer = tokenizer
        self._size = limits.max_sequences
        ends = sampling.ends or tuple(policy.end_tokens(config.model.path, tokenizer))
        self._sampling = replace(sampling, ends=ends)
        self._path = ""  # of the model that is loaded
        self._disk = NOTHING  # what is loaded; its version is the folder of the weights
        self._merged: MergedCopy | None = None  # of the newest policy that can be merged

    def generate(self, works: Iterable[Work], *, logprobs: bool = False) -> Answers:
        """See Engine: each work with one completion for each seed of its requests."""
        for work in works:
            with self._serving(work.weights) as model:
                groups = self._groups(model, work, logprobs)
            yield work, groups

    def _groups(self, model: Model, work: Work, logprobs: bool) -> Groups:
        """The completions of one work, in batches of at most `limits.max_sequences`."""
        requests = work.requests
        sampling = self._sampling
        if work.full_length:
            sampling = replace(sampling, ends=(), stop=())
        if work.greedy:
            sampling = replace(sampling, temperature=0.0)
        # By length: little of a batch is padding; the longest shows a lack of memory at once.
        order = sorted(range(len(requests)), key=lambda i: -len(requests[i].prompt))
        rows = [(i, seed) for i in order for seed in requests[i].seeds]
        size = self._size or max(1, len(rows))
        groups: Groups = [[] for _ in requests]
        for start in range(0, len(rows), size):
            chunk = rows[start : start + size]
            batch = [
                Request(requests[i].prompt, [seed for _, seed in pairs])
                for i, pairs in groupby(chunk, key=lambda row: row[0])
            ]
            completions = decode(model, self._tokenizer, batch, sampling, logprobs)
            for (i, _), completion in zip(chunk, completions, strict=True):
                groups[i].append(completion)
        return groups

    @contextmanager
    def _serving(self, weights: Weights) -> Iterator[Model]:
        """The model that decodes for `weights`; a live one is in training mode again afterwards."""
        live = weights if isinstance(weights, LivePolicy) else self._from_disk(weights)
        if can_be_merged(live.model):
            if self._merged is None or self._merged.source is not live.model:
                self._merged = MergedCopy(live.model)
            yield self._merged.refreshed(live.version)
        else:
            with evaluated(live.model) as model:
                yield model

    def _from_disk(self, weights: Path | None) -> LivePolicy:
        """The base model, the base with a checkpoint's adapter, or a full checkpoint."""
        if weights == self._disk.version:
            return self._disk
        model = self._disk.model
        self._disk, self._merged = NOTHING, None  # free the one before
        if isinstance(model, PeftModel):
            model = model.unload()  # base weights were never touched
        adapted = weights and is_adapter(weights)
        path = self._config.model.path if adapted or not weights else str(weights)
        if path != self._path:
            model, self._path = None, ""  # free the one before
            config = self._config.moved(path)
            model = speed_up(policy.load_transformers(config, self._tokenizer).model.eval())
        if adapted:
            model = PeftModel.from_pretrained(model, weights).eval()
        self._path = path
        self._disk = LivePolicy(model, weights)
        return self._disk

    def __exit__(self, *error: object) -> None:
        """Free every model that was loaded or copied."""
        self._disk, self._merged = NOTHING, None
        gc.collect()
        torch.cuda.empty_cache()


class MergedCopy:
    """A copy of a LoRA model with the adapter added to its layers; other weights are `source`'s."""

    def __init__(self, source: PeftModel) -> None:
        self.source = source
        self._version: Hashable = None
        self._layers = []  # (layer with its adapter, the copy of its base layer)
        # What deepcopy finds here stands for its copy: parameters are shared, and a layer with an
        # adapter becomes a copy of its base layer.
        memo: dict[int, Any] = {id(parameter): parameter for parameter in source.parameters()}
        for layer in lora_layers(source):
            base = layer.get_base_layer()
            others = {id(p): p for p in base.parameters() if p is not base.weight}
            merged = copy.deepcopy(base, others)
            memo[id(layer)] = merged
            self._layers.append((layer, merged))
        self.model = speed_up(copy.deepcopy(plain(source), memo).eval())

    @torch.no_grad()
    def refreshed(self, version: Hashable) -> Model:
        """The copy with the current adapter, which is added once for each version."""
        if version != self._version:
            name = self.source.active_adapter
            for layer, merged in self._layers:
                merged.weight.copy_(layer.get_base_layer().weight + layer.get_delta_weight(name))
            self._version = version
        return self.model


@contextmanager
def evaluated(model: Model | PeftModel) -> Iterator[Model]:
    """The plain model, in evaluation mode within this block."""
    training = model.training
    try:
        yield plain(model.eval())
    finally:
        model.train(training)


def can_be_merged(model: Model | PeftModel) -> bool:
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
        and users[id(base.weight)] == 1  # else another layer shares it
        for base in (layer.get_base_layer() for layer in lora_layers(model))
    )


def lora_layers(model: PeftModel) -> list[LoraLayer]:
    """The layers of the model that have an adapter."""
    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def plain(model: Model | PeftModel) -> Model:
    """The transformers model, with PEFT's layers in it if it has any."""
    return model.get_base_model() if isinstance(model, PeftModel) else model
