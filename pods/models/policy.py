"""The model that is trained, its adapter and its tokenizer, by transformers and PEFT. Only weights
in safetensors are read, and no code of a model repository is run."""

from __future__ import annotations  # Unsloth precedes transformers and PEFT

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from pods import ranks
from pods.config.errors import UserError
from pods.config.keys import TrainConfig, listed
from pods.files import few
from pods.models import locate

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig, PreTrainedConfig
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer


@dataclass
class Policy:
    """The model to train, as a backend has loaded it."""

    model: Model  # with Unsloth already wrapped by its adapter
    tokenizer: Tokenizer
    peft_config: LoraConfig | None  # for TRL to apply; None: applied already, or full-parameter
    end_tokens: list[int]  # every token that ends a completion, the tokenizer's first


def set_threads(threads: int | None) -> None:
    """By default one core stays free: two threads beside a busy process made one generate call
    40 times slower (measured on 2 cores). The ranks of a machine share the other cores."""
    cores = (os.cpu_count() or 2) - 1
    torch.set_num_threads(threads or max(1, cores // ranks.ranks_of_machine()))


@contextmanager
def model_errors(path: str) -> Iterator[None]:
    """An error of a library in this block is UserError: each has its own types for a model that it
    cannot read or write."""
    try:
        yield
    except (UserError, torch.OutOfMemoryError):
        raise
    except OSError as error:
        if error.errno:  # of the disk; errors of the hub have no number
            raise
        raise UserError(
            f"model.path={path}: no whole model folder, and the hub did not give it ({error}); "
            "download it elsewhere and name its folder, or set HF_HUB_OFFLINE=1 if cached"
        ) from error
    except Exception as error:
        raise UserError(f"model.path={path}: {error}") from error


def read_config(path: str) -> PreTrainedConfig:
    """The config.json at `path` (folder or hub id)."""
    from transformers import AutoConfig

    with model_errors(path):
        return AutoConfig.from_pretrained(locate(path), trust_remote_code=False)


def load_tokenizer(path: str, pad_token: str | None = None) -> Tokenizer:
    """The tokenizer at `path` (folder or hub id), padded left with `pad_token` or its own."""
    from transformers import AutoTokenizer

    keys = read_config(path).get_text_config()
    with model_errors(path):
        tokenizer = AutoTokenizer.from_pretrained(
            locate(path),
            padding_side="left",
            trust_remote_code=False,
        )
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

    others = None
    with model_errors(path), suppress(OSError):  # a model folder may go without the file
        others = GenerationConfig.from_pretrained(locate(path)).eos_token_id
    return list(dict.fromkeys([*listed(tokenizer.eos_token_id), *listed(others)]))


def load_model(path: str, dtype: str, **settings: Any) -> Model:
    """The causal language model at `path`, a folder or a hub id. Raises UserError, also if a weight
    is not in its files: transformers would train a random one."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    with model_errors(path):
        model, report = AutoModelForCausalLM.from_pretrained(
            locate(path),
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # they are in the report
            output_loading_info=True,
            **settings,
        )
    for name, shape, expected in report["mismatched_keys"]:
        raise UserError(
            f"model.path={path}: {name} has the shape {tuple(shape)}, not {tuple(expected)} as in "
            "its config.json; download the model again"
        )
    if report["missing_keys"]:
        raise UserError(
            f"model.path={path}: its files lack {few(sorted(report['missing_keys']))}; download "
            "the model again, or correct tie_word_embeddings in its config.json"
        )
    try:
        model.generation_config.validate(strict=True)
    except ValueError as error:  # of flags without an effect, with which no checkpoint is written
        for name in re.findall(r"^- `(\w+)`:", str(error), re.MULTILINE):
            setattr(model.generation_config, name, None)
    return model


def refuse_unsavable(path: str, tokenizer: Tokenizer, model: Model | None = None) -> None:
    """Raise UserError now if a checkpoint could not be saved; model: if all weights are saved."""
    with model_errors(path), TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        if model is not None:
            model.save_pretrained(folder, state_dict={})


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
    settings: dict[str, Any] = {"device_map": "cuda" if torch.cuda.is_available() else "cpu"}
    if ranks.world_size() > 1:  # the trainer, or DeepSpeed, moves all but quantised weights
        settings["device_map"] = {"": ranks.local_rank()} if keys.load_in_4bit else None
    if keys.load_in_4bit:
        settings["quantization_config"] = quantisation(keys.dtype)
    model = load_model(keys.path, keys.dtype, **settings)
    adapter = None
    if config.lora.rank:
        refuse_targets(config, model)
        adapter = LoraConfig(**config.lora.model_dump(by_alias=True), task_type="CAUSAL_LM")
    refuse_unsavable(keys.path, tokenizer, None if adapter else model)
    return Policy(model, tokenizer, adapter, end_tokens(keys.path, tokenizer))
