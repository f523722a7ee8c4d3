"""Why a model or its vLLM engine did not load: no memory, an unreadable model, or vLLM itself.

Unsloth turns every error of vLLM into a RuntimeError (or MemoryError), so the text decides.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pods.config.errors import OutOfMemory, RunFailed, UserError

NO_ROOM = ("no available memory for the cache blocks", "available kv cache memory")
FULL = ("out of memory", "failed to allocate", "less than desired gpu memory utilization")
DENIED = "not an out of memory error"  # Unsloth's words for other causes
UNREADABLE = "failed to load model"  # Unsloth's words where neither config can be read
FALLBACK = "VLLM_USE_V2_MODEL_RUNNER=0 in the environment selects vLLM's older model runner"


@contextmanager
def explained(path: str, share: str) -> Iterator[None]:
    """Errors of this block as one line.

    Args:
        path: what the config names as `model.path`.
        share: key and value of vLLM's share of the card.
    """
    try:
        yield
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        raise loading_error(path, share, error) from error


def loading_error(path: str, share: str, error: Exception) -> UserError:
    """OutOfMemory (exit code 4), UserError for a model that cannot be read, else RunFailed."""
    said = str(error).lower().replace(DENIED, "")
    if any(words in said for words in NO_ROOM):
        return OutOfMemory(f"{share}: no room for vLLM's KV cache; raise it ({error})")
    full = isinstance(error, torch.OutOfMemoryError | MemoryError)
    if full or any(words in said for words in FULL):
        return OutOfMemory(f"out of GPU memory while loading; lower {share} ({error})")
    if isinstance(error, OSError | ValueError) or UNREADABLE in said:
        return UserError(f"{path}: {error}", key="model.path")
    return RunFailed(f"the engine did not start; {FALLBACK}, or set another engine ({error})")
