"""The model that is trained, its adapter and tokenizer, per backend.

backend=transformers runs anywhere; backend=unsloth needs CUDA and `uv sync --extra gpu`. Weights
are read as safetensors only, and no code of a model repository is run.
"""

import importlib.util
import os
from dataclasses import dataclass
from typing import Any

import torch

from pods import ranks
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.models.location import locate


@dataclass
class Policy:
    model: Any  # a transformers model; with Unsloth already wrapped by its adapter
    tokenizer: Any
    peft_config: Any  # LoraConfig for TRL to apply, None if applied already or full-parameter
    backend: str  # transformers | unsloth
    device: str  # cpu | cuda
    dtype: str  # float32 | bfloat16
    end_tokens: list[int]  # every token that ends a completion, the tokenizer's first


def choose_backend(name: str) -> tuple[str, str]:
    """The backend that will run, and why. Raises UserError where the named one cannot."""
    cuda = torch.cuda.is_available()
    extra = importlib.util.find_spec("unsloth") is not None
    world_size = ranks.world_size()
    if world_size > 1 and name == "auto":
        return "transformers", f"{world_size} processes; Unsloth trains on one GPU"
    if world_size > 1 and name == "unsloth":
        raise UserError(
            f"backend=unsloth: it trains on one GPU, and {world_size} processes were launched; use "
            "backend=transformers"
        )
    if name == "auto":
        if cuda and extra:
            return "unsloth", "found CUDA and the gpu extra"
        missing = "no CUDA device" if not cuda else "the gpu extra is not installed"
        return "transformers", missing
    if name == "unsloth" and not (cuda and extra):
        missing = "the gpu extra (uv sync --extra gpu)" if cuda else "a CUDA device"
        raise UserError(
            f"backend=unsloth: it needs {missing}; use backend=transformers on this machine"
        )
    return name, "as configured"


def check_device(config: TrainConfig) -> None:
    """Raise UserError where this machine cannot hold the weights as the config asks."""
    if config.model.load_in_4bit and not torch.cuda.is_available():
        raise UserError(
            "model.load_in_4bit=true: 4-bit weights need CUDA; set model=tiny on a machine without "
            "a GPU, or model.load_in_4bit=false"
        )


def choose_optimizer(name: str) -> str:
    """`auto` is 8-bit AdamW, as published, where bitsandbytes can run it, else torch's AdamW."""
    if name != "auto":
        return name
    eight_bit = torch.cuda.is_available() and importlib.util.find_spec("bitsandbytes")
    return "adamw_8bit" if eight_bit else "adamw_torch_fused"


def set_threads(threads: int | None) -> None:
    """By default one core stays free: two threads beside a busy process made one generate call
    40 times slower (measured on 2 cores). The ranks of a machine share the other cores."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    torch.set_num_threads(threads or max(1, ((os.cpu_count() or 2) - 1) // ranks))


def load_tokenizer(path: str, pad_token: str | None = None) -> Any:
    """The tokenizer at `path` (folder or hub id), padded on the left; checks the special tokens.

    pad_token: used in place of the tokenizer's own; a token that it already knows.
    """
    from transformers import AutoTokenizer

    place = locate(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            place, padding_side="left", trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: not a local model folder, and the hub did not give it "
            f"({type(error).__name__}); download it on a machine with a network and name the "
            "folder, or set HF_HUB_OFFLINE=1 where the cache has it",
            key="model.path",
        ) from error
    if pad_token is not None:
        if pad_token not in tokenizer.get_vocab():
            raise UserError(f"model.pad_token={pad_token}: not a token of {path}; name one")
        tokenizer.pad_token = pad_token
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        raise UserError(
            f"{path}: the tokenizer's pad token must differ from its end token "
            f"{tokenizer.eos_token!r}, because masks are rebuilt from it; set "
            "model.pad_token=<another special token of the tokenizer>",
            key="model.path",
        )
    return tokenizer


def end_tokens(path: str, tokenizer: Any) -> list[int]:
    """Every token that ends a completion: the tokenizer's, then those of generation_config.json."""
    from transformers import GenerationConfig

    try:
        named = GenerationConfig.from_pretrained(locate(path)).eos_token_id
    except OSError:  # a model folder may go without the file
        named = None
    named = named if isinstance(named, list) else [named]
    return list(dict.fromkeys(t for t in [tokenizer.eos_token_id, *named] if t is not None))


def lora_config(config: TrainConfig) -> Any:
    """PEFT's LoraConfig, or None where every parameter is trained (lora.rank=null)."""
    from peft import LoraConfig

    if config.lora.rank is None:
        return None
    return LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules=list(config.lora.target_modules),
        task_type="CAUSAL_LM",
    )


def load_policy(config: TrainConfig, tokenizer: Any) -> Policy:
    """The policy of a run on the backend that config.backend.name says (`auto` is resolved)."""
    if config.backend.name == "unsloth":
        from pods.models.unsloth import load_unsloth

        return load_unsloth(config, tokenizer)
    return load_transformers(config, tokenizer)


def placement(device: str, quantized: bool) -> Any:
    """Where the weights go. Several ranks: the trainer, or DeepSpeed, moves them to each one's GPU;
    quantised ones cannot be moved."""
    if ranks.world_size() == 1:
        return device
    return {"": int(os.environ["LOCAL_RANK"])} if quantized else None


def load_transformers(config: TrainConfig, tokenizer: Any) -> Policy:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, config.model.dtype)
    quantization = None
    if config.model.load_in_4bit:
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,  # as Unsloth and vLLM's plugin quantise
            bnb_4bit_compute_dtype=dtype,
        )
    try:
        model = AutoModelForCausalLM.from_pretrained(
            locate(config.model.path),
            dtype=dtype,
            device_map=placement(device, config.model.load_in_4bit),
            quantization_config=quantization,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, ValueError) as error:
        raise UserError(f"{config.model.path}: {error}", key="model.path") from error
    return Policy(
        model,
        tokenizer,
        lora_config(config),
        "transformers",
        device,
        config.model.dtype,
        end_tokens(config.model.path, tokenizer),
    )
