"""backend=unsloth on an NVIDIA GPU: fast LoRA, and a vLLM engine that shares the base weights."""

from __future__ import annotations  # Unsloth precedes transformers

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from pods import ranks
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.models import locate, named_loading_errors
from pods.models.policy import Policy, end_tokens, refuse_targets, refuse_unsavable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

# load_vllm takes exactly this value for "not given" and then picks one from the free memory.
UNSLOTH_DEFAULT_SEQUENCES = 256
# Set before Unsloth is imported, unless the user has set them; docs/gpu.md lists them.
ENVIRONMENT = {
    # Unsloth would report usage to the hub, and wait up to 120 s if it does not answer.
    "UNSLOTH_DISABLE_STATISTICS": "1",
    # It asks vLLM for its messages, which go to stdout; warnings still go to stderr.
    "VLLM_CONFIGURE_LOGGING": "0",
}


def import_unsloth(config: TrainConfig) -> None:
    """Import Unsloth with the environment it reads at import, before TRL, transformers and PEFT."""
    if config.engine == "unsloth" and ranks.in_process_group():
        raise UserError(
            "engine=unsloth: the vLLM of an earlier job stays in this process; "
            "start each job by a command of its own, or set engine=vllm"
        )
    os.environ["UNSLOTH_VLLM_STANDBY"] = str(int(config.vllm.standby))
    # Unset means 1 for 16-bit weights on a card, from Unsloth 2026.10.9 on.
    os.environ["UNSLOTH_VLLM_MERGED_ROLLOUT"] = str(int(config.vllm.merged_rollouts))
    # Otherwise a folder of generated code appears in the working folder.
    defaults = {**ENVIRONMENT, "UNSLOTH_COMPILE_LOCATION": f"{config.output_dir}/.unsloth_compiled"}
    os.environ |= defaults | os.environ  # what the user has set stays
    import_module("unsloth")
    trainer = import_module("trl").GRPOTrainer
    if not trainer.__name__.startswith("Unsloth"):  # Unsloth swallows its own errors
        raise UserError(
            "backend=unsloth: Unsloth did not rewrite trl.GRPOTrainer; "
            "uv sync --locked --extra gpu, or set backend=transformers"
        )


def engine_arguments(config: TrainConfig) -> dict[str, Any]:
    """Without a limit vLLM runs every rollout of a step at once: n x P; TRL would take m x P."""
    sequences = config.max_sequences or config.rollouts_per_prompt * config.prompts_per_step
    if sequences == UNSLOTH_DEFAULT_SEQUENCES:
        sequences += 1
    return {
        "gpu_memory_utilization": config.vllm.gpu_memory_utilization,
        "max_lora_rank": config.lora.rank,
        "max_num_seqs": sequences,
        "unsloth_vllm_standby": config.vllm.standby,
    }


def say_if_fewer(config: TrainConfig, engine: Any) -> None:
    """Unsloth loads vLLM again with three quarters of the sequences if memory is short."""
    wanted = engine_arguments(config)["max_num_seqs"]
    loaded = getattr(engine, "approx_max_num_seqs", wanted)
    if loaded < wanted:
        ranks.say(
            f"Unsloth loaded vLLM for {loaded} sequences at once, not {wanted}, because memory was "
            "short: a step takes several rounds; raise vllm.gpu_memory_utilization="
            f"{config.vllm.gpu_memory_utilization}, or lower rollouts_per_prompt"
        )


def check_pad(path: str, tokenizer: Tokenizer) -> None:
    """UserError if the pad token ends completions: Unsloth masks every pad, also one at the end."""
    if tokenizer.pad_token_id in end_tokens(path, tokenizer):
        raise UserError(
            f"model.pad_token={tokenizer.pad_token}: it also ends completions of {path}, and "
            "Unsloth masks every pad; set model.pad_token=<another special token>"
        )


def load_unsloth(config: TrainConfig, tokenizer: Tokenizer) -> Policy:
    """The policy with its adapter applied; with engine=unsloth vLLM is in `model.vllm_engine`."""
    check_pad(config.model.path, tokenizer)
    from unsloth import FastLanguageModel

    vllm = config.engine == "unsloth"
    keys = config.model
    length = config.sampling.max_prompt_length + config.sampling.max_completion_length
    share = f"vllm.gpu_memory_utilization={config.vllm.gpu_memory_utilization}"
    with named_loading_errors(keys.path, share):
        model, _ = FastLanguageModel.from_pretrained(
            model_name=locate(keys.path),
            max_seq_length=length,
            dtype=getattr(torch, keys.dtype),
            load_in_4bit=keys.load_in_4bit,
            load_in_16bit=not keys.load_in_4bit,
            use_exact_model_name=True,  # else a 4-bit repository of Unsloth's takes its place
            fast_inference=vllm,
            random_state=config.seed,
            **(engine_arguments(config) if vllm else {}),
        )
    if vllm:
        say_if_fewer(config, getattr(model, "vllm_engine", None))
    refuse_targets(config, model)
    refuse_unsavable(keys.path, tokenizer)
    model = FastLanguageModel.get_peft_model(
        model,
        **config.lora.model_dump(by_alias=True),
        use_gradient_checkpointing="unsloth" if config.gradient_checkpointing else False,
        random_state=config.seed,  # seeds again: building the engine reset every generator
        max_seq_length=length,
    )
    if vllm and getattr(model, "vllm_engine", None) is None:
        raise UserError("engine=unsloth: no vLLM was loaded; see its messages, or set engine=trl")
    # Unsloth masks every pad: a sampled one ends the completion, so that no token of its middle
    # leaves the loss.
    ends = [*end_tokens(keys.path, tokenizer), tokenizer.pad_token_id]
    return Policy(model, tokenizer, None, ends)
