"""Evaluation inside real runs: it changes no weight, and validation names the best checkpoint."""

import json

import pytest

from pods import files
from pods.evaluation import scores
from pods.runs import checkpoints, results
from tests import processes
from tests.unit.test_midrun import COUNTS, EVALUATION

SETTINGS = [
    *processes.SMALL,
    "rollouts_per_prompt=4",
    "kept_per_prompt=2",
    "max_steps=4",
    "checkpoint.every_steps=2",
]


def test_it_leaves_training_alone_and_its_time_out_of_the_clock(tmp_path):
    plain, evaluated = tmp_path / "without" / "r", tmp_path / "with" / "r"
    for run, extra in ((plain, []), (evaluated, EVALUATION)):
        arguments = [*SETTINGS, f"output_dir={run.parent}", *extra]
        processes.run(run.parent / "out", *arguments)
    records = [list(files.read_lines(run / "rollouts.jsonl.gz")) for run in (plain, evaluated)]
    assert records[0] == records[1]
    adapter = "checkpoint-4/adapter_model.safetensors"
    assert (plain / adapter).read_bytes() == (evaluated / adapter).read_bytes()
    assert not (plain / "evaluations.jsonl").exists()
    metrics = files.read_lines(evaluated / "metrics.jsonl")
    meta = json.loads((evaluated / "checkpoint-4" / "meta.json").read_text())
    seconds = sum(line["eval/seconds"] for line in metrics)
    assert 0 < seconds <= meta["outside_seconds"]["evaluate"]
    phases = [v for line in metrics for k, v in line.items() if k.startswith("seconds/")]
    assert meta["train_seconds"] == metrics[-1]["train_seconds"] == pytest.approx(sum(phases))
    lines = files.read_lines(evaluated / "evaluations.jsonl")
    assert [line["step"] for line in lines] == [line["step"] for line in metrics] == [1, 2, 3, 4]
    for line, step in zip(lines, metrics, strict=True):  # counts of the step, and its own numbers
        for key in (*COUNTS, "eval/accuracy", "eval/seconds"):
            assert line[key] == step[key]
        assert (line["task"], line["split"], len(line["correct"])) == ("arithmetic", "test", 5)
    assert meta["checkpoint_best"] is None  # test questions choose nothing


def scripted_grades():
    """Of five questions 1, 3, 2, 4 and 5 are correct in the evaluations of a process."""
    counts = iter([1, 5, 3, 0, 2, 0, 4, 0, 5, 0])  # sampled, greedy, ...

    def grade(records, versions, kind):
        count = next(counts)
        for i, record in enumerate(records):
            record["correct"][versions[0]] = i < count

    scores.grade = grade


def test_validation_names_the_best_checkpoint(tmp_path):
    arguments = [*SETTINGS, *EVALUATION, "evaluation.split=validation"]
    arguments += [f"output_dir={tmp_path}", "checkpoint.every_steps=null"]
    done = processes.run(tmp_path / "out", *arguments, fault=scripted_grades)
    assert "best on validation: checkpoint-4" in done.stdout

    def best():
        saved = checkpoints.find(tmp_path / "r")
        return {c.step: c.meta["checkpoint_best"]["accuracy"] for c in saved}

    assert best() == {1: 0.2, 2: 0.6, 4: 0.8}  # 3 was no better
    processes.run(tmp_path / "further", *arguments, "max_steps=5", fault=scripted_grades)
    assert best()[5] == 0.8  # 0.2 at step 5 is no better
    noted = results.facts_of(tmp_path / "r" / "meta.json")["checkpoint_best"]
    assert noted == {"checkpoint": "checkpoint-4", "accuracy": 0.8, "on": "validation"}
