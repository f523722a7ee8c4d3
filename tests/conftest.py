"""The repository's root, shared data, and the order and environment of all tests."""

import gc
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The nearest shared/reference beside the repository, or above it where this is a work tree.
ABOVE = (folder / "shared" for folder in ROOT.parents)
SHARED = next((folder for folder in ABOVE if (folder / "reference").is_dir()), ROOT / "no")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side on two cores
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # commands are forked
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for a hub
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every new interpreter compiles torch again

# Files that take half a minute or more start first, the longest at the head, so that the two
# workers end together.
LONGEST_FIRST = [
    "vllm",
    "unsloth_drift",
    "machines",
    "smollm2",
    "commands",
    "board",
    "deepspeed",
    "distributed",
    "wheel",
    "faults",
    "golden",
    "evaluation",
    "docs",
    "pods_trainer",
    "midrun",
    "rewards_strict",
    "engines",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {f"test_{name}": number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_collection_finish() -> None:
    gc.freeze()  # else torch and TRL are searched for garbage again and again


@pytest.fixture(scope="session")
def shared():
    """../shared, where the real data and published results are; absent on most machines."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not on this machine")
    return SHARED
