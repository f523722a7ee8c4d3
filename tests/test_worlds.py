"""The worlds of the board: the trainings that they are, and their bases."""

import hashlib
import json

import pytest

from tests.configs import compose
from tests.conftest import ROOT

BASES = {"tags": "tiny_policy_tags", "hard": "tiny_policy_hard"}


@pytest.mark.parametrize("world", ["sums", "noisy", "steps", "tags", "hard", "large"])
def test_a_world_is_a_training_of_1200_seconds_at_a_price(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # its rewards are found from every folder
    config = compose(f"experiment={world}")
    assert (config.clock.name, config.budget.train_seconds) == ("l40s", 1200)
    assert config.rewards.grader == {"noisy": "noisy"}.get(world, "correctness")
    own_bases = BASES | {"large": "tiny_policy_large"}
    assert config.model.path.endswith(own_bases.get(world, "tiny_policy"))


@pytest.mark.parametrize("world", BASES)
def test_the_bases_are_those_that_were_measured(world):
    stored = json.loads((ROOT / "benchmarks" / "results" / "worlds.json").read_text())
    weights = ROOT / "pods" / BASES[world] / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == stored[world]["sha256"]
    assert weights.stat().st_size < 4e6
