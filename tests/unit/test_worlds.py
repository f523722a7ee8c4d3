"""The worlds of the board: the trainings that they are, and their bases."""

import hashlib
import json

import pytest

from tests.configs import compose
from tests.conftest import ROOT

BASES = {"tags": "tiny_policy_tags", "hard": "tiny_policy_hard"}


@pytest.mark.parametrize(("world", "grader"), [("noisy", "noisy"), ("steps", "correctness")])
def test_the_rewards_of_a_world_are_found_from_every_folder(world, grader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compose(f"experiment={world}").rewards.grader == grader


@pytest.mark.parametrize("world", BASES)
def test_the_bases_are_those_that_were_measured(world):
    stored = json.loads((ROOT / "benchmarks" / "results" / "worlds.json").read_text())
    weights = ROOT / "pods" / BASES[world] / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == stored[world]["sha256"]
    assert weights.stat().st_size < 4e6
