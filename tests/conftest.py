"""The repository's root, shared data, and the order and environment of all tests."""

import gc
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side on two cores
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # commands are forked
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for a hub
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every new interpreter compiles torch again

# Files that take a minute or more start first, so that the two workers end together.
SLOW = (
    "test_vllm", "test_deepspeed", "test_evaluation", "test_commands",
    "test_faults", "test_distributed", "test_unsloth_drift",
    "test_slurm",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.index(item.path.stem) if item.path.stem in SLOW else len(SLOW))
    skip = pytest.mark.skip(reason="about a minute; CI=true uv run pytest runs it")
    for item in items if "CI" not in os.environ else ():
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    gc.freeze()  # else torch and TRL are searched for garbage again and again


@pytest.fixture(scope="session")
def shared() -> Path:
    """../shared, where the real data and published results are; absent on most machines."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not on this machine")
    return SHARED
