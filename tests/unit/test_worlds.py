"""The worlds of the board: the trainings that they are, and their bases."""

import hashlib
from pathlib import Path

import pytest
from hydra.errors import MissingConfigException

from pods.config import command
from pods.config.mistakes import explain
from pods.models import locate
from tests.configs import compose
from tests.conftest import ROOT
from tests.unit.test_tiny_policy import stored_base

BASES = ("tags", "hard")
WORLDS = ROOT / "benchmarks" / "worlds"


@pytest.mark.parametrize(("world", "grader"), [("noisy", "noisy"), ("steps", "correctness")])
def test_the_rewards_of_a_world_are_found_from_every_folder(world, grader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compose(f"experiment={world}").rewards.grader == grader


@pytest.mark.parametrize("world", BASES)
def test_a_world_outside_of_the_wheel_is_found_with_its_folder_alone(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "SEARCHED", [command.CONFIG_DIR])
    with pytest.raises(MissingConfigException) as error:
        compose(f"experiment={world}")
    assert f"-cd benchmarks/worlds experiment={world}" in explain(error.value)
    monkeypatch.setattr(command, "SEARCHED", [command.CONFIG_DIR, WORLDS])
    config = compose(f"experiment={world}")
    assert (config.experiment, config.model.name) == (world, f"tiny_{world}")
    assert (Path(locate(config.model.path)) / "model.safetensors").is_file()


@pytest.mark.parametrize("world", BASES)
def test_the_bases_are_those_that_were_measured(world):
    weights = WORLDS / f"tiny_policy_{world}" / "model.safetensors"
    assert (
        hashlib.sha256(weights.read_bytes()).hexdigest()
        == stored_base(world, "validation")["sha256"]
    )
    assert weights.stat().st_size < 4e6
