"""Evaluation inside a run: own clock, own samples, same training."""

import json

import numpy as np
import pytest

from pods import files
from pods.engines import Completion, LivePolicy, Work
from pods.evaluation import questions, scores
from pods.evaluation.midrun import MidRun
from pods.models.policy import load_tokenizer
from pods.runs import checkpoints, results
from tests import processes
from tests.configs import compose

SETTINGS = [
    *processes.SMALL,
    "rollouts_per_prompt=4",
    "kept_per_prompt=2",
    "max_steps=4",
    "checkpoint.every_steps=2",
]
EVALUATION = ["evaluation.every_seconds=0.001", "evaluation.questions=5"]
COUNTS = {"train_seconds": 2.5, "tokens/generated": 90, "tokens/trained": 30}


@pytest.mark.slow
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


def test_every_verdict_is_counted_as_what_it_is(tmp_path):
    config = compose(*SETTINGS, *EVALUATION)
    tokenizer, path, works = load_tokenizer(config.model.path), tmp_path / "lines.jsonl", []
    midrun = MidRun(config, None, tokenizer, path)
    rows = midrun.questions.rows[:5]
    answers = [row["answer"] for row in rows]
    texts = [f"<think></think><answer>{answers[0]}</answer>", f"<answer>{answers[1]}</answer>"]
    texts += [f"<answer>{answers[2]}</answer>", "<think>", "<think></think><answer>999999</answer>"]
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]

    class Engine:
        def generate(self, asked):
            works.extend(asked)
            sampled = [*ids[:2], *[ids[4]] * 3] if asked[0].greedy else ids
            yield asked[0], [[Completion(tokens, tokens is ids[3])] for tokens in sampled]

    midrun.engine = Engine()
    live = LivePolicy(None, 7)
    metrics = midrun(live, 7, COUNTS)
    requests = questions.requests("arithmetic", rows, config.seed, "step-7", repeat=0)
    assert works == [Work(requests, live, evaluation=True, greedy=greedy) for greedy in (0, 1)]
    assert metrics.pop("eval/seconds") > 0
    assert metrics == {
        "eval/accuracy": 0.6,
        "eval/well_formed": 0.4,
        "eval/clipped_ratio": 0.2,
        "eval/greedy_accuracy": 0.4,
        "eval/completion_length_mean": np.mean([len(tokens) for tokens in ids]),
    }
    (line,) = files.read_lines(path)
    assert line.items() >= (COUNTS | metrics | {"step": 7, "split": "test"}).items()
    assert line["correct"] == [1, 1, 1, 0, 0]
    assert line["greedy"]["correct"] == [1, 1, 0, 0, 0]
    assert line["entry"]["both_acc"] == [0.2]
    assert line["scores"]["rewards"].keys() == {config.rewards.version}


def scripted_grades():
    """Of five questions 1, 3, 2, 4 and 5 are correct in the evaluations of a process."""
    counts = iter([1, 5, 3, 0, 2, 0, 4, 0, 5, 0])  # sampled, greedy, ...

    def grade(records, versions, kind, deadline_seconds):
        count = next(counts)
        for i, record in enumerate(records):
            record["correct"][versions[0]] = i < count

    scores.grade = grade


@pytest.mark.slow
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
