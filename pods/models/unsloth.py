"""On an NVIDIA GPU: Unsloth's fast LoRA and a vLLM engine that shares the base weights.

Departs from the published code: the base is quantised from `model.path` itself (Unsloth would load
its own repository instead), and a run ends if the engine does not sample from the trained policy.
Run by `uv run train.py backend=unsloth ...` after `uv sync --extra gpu`.
"""

import importlib.util
import os
import tempfile
from typing import Any

import torch

from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import loading
from pods.models.policy import Policy, end_tokens, locate

# load_vllm takes exactly this value for "not given" and then picks one from the free memory.
UNSLOTH_DEFAULT_SEQUENCES = 256
BNB_PLUGIN = "vllm_bnb_plugin"  # vLLM 0.28 no longer contains its bitsandbytes support


def import_unsloth(config: TrainConfig) -> None:
    """Import Unsloth with the environment it reads at import. Must precede TRL, transformers, PEFT.

    Raises UserError where the gpu extra is incomplete or TRL was not rewritten.
    """
    packed = config.model.load_in_4bit and config.engine.name == "unsloth"
    if packed and not importlib.util.find_spec(BNB_PLUGIN):
        raise UserError(
            "model.load_in_4bit=true: vLLM reads 4-bit weights through the package "
            "vllm-bnb-plugin, which is not installed; run uv sync --extra gpu, or set "
            "engine=trl"
        )
    if config.engine.name == "unsloth" and torch.distributed.is_initialized():
        raise UserError(
            "engine=unsloth: its vLLM of an earlier job stays in this process until the end; give "
            "each job of a sweep a process (hydra/launcher=submitit_local), or set engine=vllm"
        )
    os.environ["UNSLOTH_VLLM_STANDBY"] = str(int(config.engine.standby))
    # Unsloth would report usage to the hub, and wait up to 120 s where it does not answer.
    os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
    # Otherwise a folder of generated code appears in the working folder.
    os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", f"{config.output_dir}/.unsloth_compiled")
    import unsloth  # noqa: F401

    require_rewrite()


def require_rewrite() -> None:
    """Raise UserError unless `import unsloth` rewrote TRL's trainer: it swallows its own errors."""
    import trl

    if not trl.GRPOTrainer.__name__.startswith("Unsloth"):
        raise UserError(
            "backend=unsloth: trl.GRPOTrainer is TRL's own, so Unsloth did not rewrite it; install "
            "the pinned versions (uv sync --locked --extra gpu), or set backend=transformers"
        )


def max_sequences(config: TrainConfig) -> int:
    """How many sequences the engine runs at once: every rollout of a step.

    TRL's own default is m x P, which would generate n x P in several waves.
    """
    sequences = config.rollouts_per_prompt * config.prompts_per_step
    return sequences + (sequences == UNSLOTH_DEFAULT_SEQUENCES)


def check_pad(path: str, tokenizer: Any) -> None:
    """Raise UserError where the pad token ends completions: Unsloth rebuilds masks as ids != pad,
    so the end of a completion would leave the loss."""
    if tokenizer.pad_token_id in end_tokens(path, tokenizer):
        raise UserError(
            f"model.pad_token={tokenizer.pad_token}: this token also ends completions of {path}, "
            "and Unsloth masks every pad; set model.pad_token=<another special "
            "token of the tokenizer>"
        )


def load_unsloth(config: TrainConfig, tokenizer: Any) -> Policy:
    """The policy with its adapter applied, and the vLLM engine in `model.vllm_engine`."""
    if config.lora.rank is None:
        raise UserError("lora.rank=null: backend=unsloth trains adapters; set lora.rank=64")
    check_pad(config.model.path, tokenizer)
    from unsloth import FastLanguageModel

    vllm, checkpointing = config.engine.name == "unsloth", config.backend.gradient_checkpointing
    length = config.sampling.max_prompt_length + config.sampling.max_completion_length
    engine = {
        "gpu_memory_utilization": config.engine.gpu_memory_utilization,
        "max_lora_rank": config.lora.rank,
        "max_num_seqs": max_sequences(config),
        "unsloth_vllm_standby": config.engine.standby,
    }
    share = f"engine.gpu_memory_utilization={config.engine.gpu_memory_utilization}"
    with loading.explained(config.model.path, share):
        model, _ = FastLanguageModel.from_pretrained(
            model_name=locate(config.model.path),
            max_seq_length=length,
            dtype=getattr(torch, config.model.dtype),
            load_in_4bit=config.model.load_in_4bit,
            load_in_16bit=not config.model.load_in_4bit,
            use_exact_model_name=True,  # else a 4-bit repository of Unsloth's takes its place
            fast_inference=vllm,
            random_state=config.seed,
            **(engine if vllm else {}),
        )
    model = FastLanguageModel.get_peft_model(
        model,
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules=list(config.lora.target_modules),
        use_gradient_checkpointing="unsloth" if checkpointing else False,
        random_state=config.seed,  # seeds again: building the engine reset every generator
        max_seq_length=length,
    )
    if vllm:
        check_engine(model, config)
        use_temporary_folder(model)
    # Unsloth masks every pad (ids != pad): a sampled one ends the completion, so that no token of
    # its middle leaves the loss.
    ends = [*end_tokens(config.model.path, tokenizer), tokenizer.pad_token_id]
    return Policy(model, tokenizer, None, "unsloth", "cuda", config.model.dtype, ends)


def use_temporary_folder(model: Any) -> None:
    """Unsloth writes the adapter's config to ./vllm_gen_lora at the first rollout: two runs in one
    working folder would read each other's rank. The folder goes with the model."""
    load, folder = model.load_lora, tempfile.TemporaryDirectory(prefix="pods-adapter-")

    def load_lora(name: str, **keys: Any) -> Any:
        return load(os.path.join(folder.name, name), **keys)

    model.load_lora = load_lora


def check_engine(model: Any, config: TrainConfig) -> None:
    """Raise UserError if the engine is missing or runs fewer sequences at once than needed."""
    engine = getattr(model, "vllm_engine", None)
    if engine is None:
        raise UserError(
            "engine=unsloth: Unsloth loaded no vLLM engine (it falls back in silence); see "
            "its messages above, or set engine=trl"
        )
    actual = engine.llm_engine.vllm_config.scheduler_config.max_num_seqs
    if actual < config.rollouts_per_prompt * config.prompts_per_step:
        raise UserError(
            f"rollouts_per_prompt={config.rollouts_per_prompt} prompts_per_step="
            f"{config.prompts_per_step}: the engine runs only {actual} sequences at once; raise "
            "engine.gpu_memory_utilization or lower one of them"
        )
