"""Fixtures for every test: the repository's root, commands run as a user would, shared data."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture
def run_command(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Run one of the repository's scripts in a temporary folder; returns its processes.Process."""
    from tests import processes  # imports torch and TRL, after the variables above are set

    def run(script: str, *arguments: str) -> processes.Process:
        output = tmp_path_factory.mktemp("output")
        return processes.run(output, *arguments, script=script, cwd=tmp_path)

    return run
