"""Which engine completes the questions of evaluate_run.py, and why; built for the run's model."""

import importlib
import os
from typing import Any

from pods.cli import UserError
from pods.config import TrainConfig
from pods.engines import Engine, Limits, Sampling
from pods.engines.training import GPU_EXTRA, cuda, installed, vllm_runs


def choose(name: str) -> tuple[str, str]:
    """The engine that will run, and why, before transformers is imported, because Unsloth rewrites
    it. Raises UserError where the named one cannot run."""
    if name == "auto":
        if not cuda():
            return "transformers", "no CUDA device"
        if not installed("vllm"):
            return "transformers", f"vllm is not installed ({GPU_EXTRA})"
        return "vllm", "found CUDA and vllm"
    if name in ("vllm", "unsloth") and not installed(name):
        raise UserError(
            f"engine={name}: {name} is not installed; {GPU_EXTRA} on a machine with an NVIDIA "
            "GPU, or set engine=transformers"
        )
    if (name == "unsloth" and not cuda()) or (name == "vllm" and not vllm_runs()):
        raise UserError(f"engine={name}: it needs a CUDA device; set engine=transformers")
    if name == "unsloth":
        os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")  # else it waits for the hub
        importlib.import_module("unsloth")
    return name, "as configured"


def build(
    name: str,
    config: TrainConfig,
    tokenizer: Any,
    sampling: Sampling,
    limits: Limits,
    lora_rank: int | None,
) -> Engine:
    """The chosen engine for a run's base model.

    lora_rank: the largest rank to come, None without adapters.
    """
    if name == "vllm":
        from pods.engines.vllm import VllmEngine

        return VllmEngine(config, tokenizer, sampling, limits, lora_rank)
    if name == "unsloth":
        from pods.engines.unsloth import UnslothEngine

        return UnslothEngine(config, tokenizer, sampling, limits, lora_rank)
    from pods.engines.transformers import TransformersEngine
    from pods.policy import set_threads

    set_threads(config.backend.threads)
    return TransformersEngine(config, tokenizer, sampling, limits)
