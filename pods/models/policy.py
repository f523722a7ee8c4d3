"""The model that is trained, its adapter and its tokenizer, by transformers and PEFT. Only weights
in safetensors are read, and no code of a model repository is run."""

from __future__ import annotations  # Unsloth precedes transformers and PEFT

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pods import ranks
from pods.config.errors import UserError
from pods.config.keys import TrainConfig, listed
from pods.models import locate

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer


@dataclass
class Policy:
    """What is trained, as a backend has loaded it."""

    model: Model  # with Unsloth already wrapped by its adapter
    tokenizer: Tokenizer
    peft_config: LoraConfig | None  # for TRL to apply; None: applied already, or full-parameter
    device: str  # cpu | cuda
    end_tokens: list[int]  # every token that ends a completion, the tokenizer's first


def set_threads(threads: int | None) -> None:
    """By default one core stays free: two threads beside a busy process made one generate call
    40 times slower (measured on 2 cores). The ranks of a machine share the other cores."""
    cores = (os.cpu_count() or 2) - 1
    torch.set_num_threads(threads or max(1, cores // ranks.ranks_of_machine()))


def load_tokenizer(path: str, pad_token: str | None = None) -> Tokenizer:
    """The tokenizer at `path` (folder or hub id), padded left with `pad_token` or its own."""
    from transformers import AutoConfig, AutoTokenizer

    try:
        keys = AutoConfig.from_pretrained(locate(path), trust_remote_code=False).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(
            locate(path),
            padding_side="left",
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise UserError(
            f"model.path={path}: no model folder, and the hub did not give it ({error}); "
            "download it elsewhere and name its folder, or set HF_HUB_OFFLINE=1 if cached"
        ) from error
    if pad_token is not None:
        if pad_token not in tokenizer.get_vocab():
            raise UserError(f"model.pad_token={pad_token}: not a token of {path}; name one")
        tokenizer.pad_token = pad_token
    pad = tokenizer.pad_token_id  # masks are rebuilt from it; some classes add one of their own
    if pad in (None, tokenizer.eos_token_id) or pad >= keys.vocab_size:
        raise UserError(
            f"model.path={path}: its pad token {tokenizer.pad_token!r} must be one of the model's "
            f"{keys.vocab_size} tokens, and not the end token {tokenizer.eos_token!r}; set "
            "model.pad_token=<another special token>"
        )
    return tokenizer


def end_tokens(path: str, tokenizer: Tokenizer) -> list[int]:
    """Every token that ends a completion: the tokenizer's, then those of generation_config.json."""
    from transformers import GenerationConfig

    try:
        others = GenerationConfig.from_pretrained(locate(path)).eos_token_id
    except OSError:  # a model folder may go without the file
        others = None
    return list(dict.fromkeys([*listed(tokenizer.eos_token_id), *listed(others)]))


def load_model(path: str, dtype: str, **settings: Any) -> Model:
    """The causal language model at `path`, a folder or a hub id. Raises UserError."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        return AutoModelForCausalLM.from_pretrained(
            locate(path),
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            trust_remote_code=False,
            **settings,
        )
    except (OSError, ValueError) as error:
        raise UserError(f"model.path={path}: {error}") from error


def refuse_targets(config: TrainConfig, model: torch.nn.Module) -> None:
    """Raise UserError for a layer of the adapter that the model lacks: PEFT skips it if others are
    there, and less is trained than was asked."""
    layers = [f".{name}" for name, module in model.named_modules() if hasattr(module, "weight")]
    for target in config.lora.target_modules:
        if not any(name.endswith(f".{target}") for name in layers):
            known = sorted({name.rpartition(".")[2] for name in layers})
            raise UserError(
                f"lora.target_modules={target}: {config.model.path} has no such layer; "
                f"it has {', '.join(known)}"
            )


def quantisation(dtype: str) -> BitsAndBytesConfig:
    """The 4 bits of a base, as Unsloth and vLLM's plugin quantise."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )


def load_transformers(config: TrainConfig, tokenizer: Tokenizer) -> Policy:
    """The policy of backend=transformers, which runs anywhere; TRL adds the adapter."""
    from peft import LoraConfig

    keys = config.model
    device = "cuda" if torch.cuda.is_available() else "cpu"
    settings: dict[str, Any] = {"device_map": device}
    if ranks.world_size() > 1:  # the trainer, or DeepSpeed, moves all but quantised weights
        settings["device_map"] = {"": ranks.local_rank()} if keys.load_in_4bit else None
    if keys.load_in_4bit:
        settings["quantization_config"] = quantisation(keys.dtype)
    model = load_model(keys.path, keys.dtype, **settings)
    adapter = None
    if config.lora.rank:
        refuse_targets(config, model)
        adapter = LoraConfig(**config.lora.model_dump(by_alias=True), task_type="CAUSAL_LM")
    return Policy(model, tokenizer, adapter, device, end_tokens(keys.path, tokenizer))
