"""Which engine completes the questions of evaluate_run.py, and why; `build` serves training too."""

import importlib
import os
from typing import Any

from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Engine, Limits, Sampling, training


def choose(name: str) -> tuple[str, str]:
    """The engine that will run, and why. Raises UserError where the named one cannot run.

    Called before transformers is imported, because Unsloth rewrites it.
    """
    if name == "auto":
        return training.fastest()
    if name in ("vllm", "unsloth") and not training.installed(name):
        raise UserError(
            f"engine={name}: {name} is not installed; {training.GPU_EXTRA} on a machine with an "
            "NVIDIA GPU, or set engine=transformers"
        )
    if (name == "unsloth" and not training.cuda()) or (name == "vllm" and not training.vllm_runs()):
        raise UserError(f"engine={name}: it needs a CUDA device; set engine=transformers")
    if name == "unsloth":
        os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")  # else it waits for the hub
        importlib.import_module("unsloth")
    return name, "as configured"


def build(
    name: str, config: TrainConfig, tokenizer: Any, sampling: Sampling, limits: Limits,
    lora_rank: int | None,
) -> Engine:  # fmt: skip
    """The chosen engine for a run's base model; lora_rank: the largest to come, None without."""
    if name == "vllm":
        from pods.engines.vllm import VllmEngine

        return VllmEngine(config, tokenizer, sampling, limits, lora_rank)
    if name == "unsloth":
        from pods.engines.unsloth import UnslothEngine

        return UnslothEngine(config, tokenizer, sampling, limits, lora_rank)
    from pods.engines.transformers import TransformersEngine
    from pods.models.policy import set_threads

    set_threads(config.backend.threads)
    return TransformersEngine(config, tokenizer, sampling, limits)
