"""The place of a model, the kind of a checkpoint folder, and loading errors in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import SubprocessError

from pods.config.errors import OutOfMemory, RunFailed, UserError
from pods.config.paths import PACKAGE, user_cache
from pods.models import smollm2

FALLBACK = "VLLM_USE_V2_MODEL_RUNNER=0 in the environment selects vLLM's older model runner"


def locate(path: str) -> str:
    """`model.path` as a local folder (also relative to the repository's root), else as a hub id."""
    if path == smollm2.PATH:
        try:
            return str(smollm2.model_folder(user_cache()))
        except ValueError as error:
            raise UserError(f"model.path={path}: {error}") from error
    for folder in (Path(path).expanduser(), PACKAGE.parent / path):
        if folder.is_dir():
            return str(folder.resolve())  # PEFT notes it in the adapter, which is loaded anywhere
    if path.count("/") > 1 or path.startswith((".", "/", "~")):
        raise UserError(f"model.path={path}: no such folder; give a folder or a hub id (org/name)")
    return path


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
