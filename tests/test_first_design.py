"""A run that an earlier version of the code wrote is resumed, evaluated and replayed."""

import json
import shutil
from pathlib import Path

import pytest

from pods.runs import checkpoints, ledger
from pods.runs.folder import read_metrics
from tests import processes

FIXTURE = Path(__file__).parent / "fixtures" / "first_design"
AS_TYPED = [
    "prompts_per_step=2",
    "run=v1", "seed=3", "rollouts_per_prompt=8", "kept_per_prompt=4", "micro_batch_size=2",
    "lora.rank=2", "checkpoint.every_seconds=null", "checkpoint.every_steps=1",
    "checkpoint.keep=1", "budget.train_seconds=null", "ledger.texts=all",
    "sampling.max_completion_length=24", "evaluation.every_seconds=0.1", "evaluation.questions=8",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_the_same_command_with_more_steps_resumes_it(folder):
    done = processes.run(folder, *AS_TYPED, "max_steps=3")
    assert done.returncode == 0, done.stderr
    assert "resuming checkpoints/v1/checkpoint-2" in done.stderr
    run = folder / "checkpoints" / "v1"
    assert [c.step for c in checkpoints.find(run)] == [1, 2, 3]
    lines = read_metrics(run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[2]["train_seconds"] > lines[1]["train_seconds"]
    assert lines[2]["tokens/generated"] > lines[1]["tokens/generated"]
    assert [batch.step for batch, _ in ledger.steps(run / "rollouts.jsonl.zst")] == [0, 1, 2]


def test_its_evaluation_goes_on_without_generating_again(folder):
    """One completion a question is on disk; a second is drawn, the first stays as it is."""
    records = folder / "results" / "v1" / "checkpoint-2" / "arithmetic" / "repeat-0.jsonl"
    before = records.read_text()
    done = processes.run(
        folder, "run=v1", "repeats=2", "max_tokens=8", script="evaluate_run.py"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert records.read_text() == before
    scores = json.loads((folder / "results" / "v1.json").read_text())
    assert {name: len(s["arithmetic"]["ans_acc"]) for name, s in scores.items()} == {
        "checkpoint-1": 2, "checkpoint-2": 2
    }  # fmt: skip


def test_its_ledger_is_replayed(folder):
    done = processes.run(folder, "run=v1", "rule=max_reward", script="scripts/replay.py")
    assert done.returncode == 0, done.stderr
    assert "2 steps" in done.stdout
