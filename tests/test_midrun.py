"""Evaluation inside a run: on its own clock, its own draws, and the same training."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

from pods.engines import Completion, LivePolicy, Work
from pods.evaluation.midrun import MidRun
from pods.models.policy import load_tokenizer
from pods.runs import checkpoints, ledger
from pods.runs import folder as runs
from pods.runs.folder import read_metrics
from tests import processes, two_ranks
from tests.configs import compose

SETTINGS = [
    "run=r", "prompts_per_step=2", "rollouts_per_prompt=8", "kept_per_prompt=4", "max_steps=4",
    "sampling.max_completion_length=8", "budget.train_seconds=null", "ledger.texts=all",
    "checkpoint.every_seconds=null", "checkpoint.every_steps=2",
]  # fmt: skip
EVALUATION = ["evaluation.every_seconds=0.001", "evaluation.questions=5"]


def test_it_leaves_training_alone_and_its_time_out_of_the_clock(tmp_path):
    for name, extra in (("without", []), ("with", EVALUATION)):
        arguments = [*SETTINGS, f"output_dir={tmp_path / name}", *extra]
        done = processes.run(tmp_path / name / "out", *arguments)
        assert done.returncode == 0, done.stderr
    plain, evaluated = (tmp_path / name / "r" for name in ("without", "with"))
    assert list(ledger.read(plain / "rollouts.jsonl.gz")) == list(
        ledger.read(evaluated / "rollouts.jsonl.gz")
    )
    weights = [
        (p / "checkpoint-4" / "adapter_model.safetensors").read_bytes() for p in (plain, evaluated)
    ]
    assert weights[0] == weights[1]
    assert not (plain / "evaluations.jsonl").exists()
    metrics = read_metrics(evaluated / "metrics.jsonl")
    meta = json.loads((evaluated / "checkpoint-4" / "meta.json").read_text())
    seconds = sum(line["eval/seconds"] for line in metrics)
    assert 0 < seconds <= meta["outside_seconds"]["evaluate"]
    phases = [v for line in metrics for k, v in line.items() if k.startswith("seconds/")]
    assert metrics[-1]["train_seconds"] == pytest.approx(sum(phases))
    assert meta["train_seconds"] == metrics[-1]["train_seconds"]
    assert_records(evaluated)


class Scripted:
    """An engine with one completion for each question, whatever the policy."""

    def __init__(self, completions: list[Completion]) -> None:
        self.completions, self.asked = completions, []

    def generate(self, works: list[Work]) -> Iterator[tuple[Work, list]]:
        for work in works:
            self.asked += work.requests
            yield work, [[c] for c in self.completions]


def test_every_verdict_stands_in_its_own_column(tmp_path):
    config = compose(*SETTINGS, *EVALUATION)
    tokenizer = load_tokenizer(config.model.path)
    path = tmp_path / "evaluations.jsonl"
    midrun = MidRun(config, None, tokenizer, path)
    right = midrun.questions.answers[:3]
    texts = [
        f"<think></think><answer>{right[0]}</answer>",
        f"<answer>{right[1]}</answer>",
        f"<answer>{right[2]}</answer>",
        "<think>",
        "<think></think><answer>999999</answer>",
    ]
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    completions = [Completion(tokens, i == 3) for i, tokens in enumerate(ids)]
    midrun.engine = engine = Scripted(completions)
    metrics = midrun(LivePolicy(None, 7), 7, 2.5)
    (record,) = read_metrics(path)
    assert [list(r.prompt) for r in engine.asked] == midrun.questions.prompt_ids[:5]
    assert record["correct"] == [1, 1, 1, 0, 0]
    assert record["well_formed"] == [1, 0, 0, 0, 1]
    assert record["clipped"] == [0, 0, 0, 1, 0]
    assert record["tokens"] == [len(tokens) for tokens in ids]
    assert (record["step"], record["train_seconds"]) == (7, 2.5)
    assert (metrics["eval/accuracy"], metrics["eval/well_formed"]) == (0.6, 0.4)
    assert metrics["eval/clipped_ratio"] == 0.2
    assert metrics["eval/completion_length_mean"] == np.mean(record["tokens"])


def scripted_grades() -> None:
    """Of five questions 1, 3, 2, 4 and 5 are right in the evaluations of a process."""
    right = iter([1, 3, 2, 4, 5])

    def grade(self: MidRun, mine: list[int], completions: list[Completion]) -> list[tuple]:
        count = next(right)
        return [
            (float(i < count), True, len(c.token_ids), False)
            for i, c in zip(mine, completions, strict=True)
        ]

    MidRun.grade = grade


@pytest.mark.parametrize("split", ["validation", "test"])
def test_validation_alone_names_the_best_checkpoint_and_ends_the_run(tmp_path, split):
    arguments = [
        *SETTINGS, *EVALUATION, f"output_dir={tmp_path}", f"evaluation.split={split}",
        "checkpoint.every_steps=null", "max_steps=5",
    ]  # fmt: skip
    stop = ["evaluation.stop_at=0.8"] if split == "validation" else []
    done = processes.run(tmp_path / "out", *arguments, *stop, fault=scripted_grades)
    assert done.returncode == 0, done.stderr
    assert f"step 2  accuracy 0.600  ({split} split, " in done.stderr
    run = tmp_path / "r"
    saved = {c.step: c.meta["checkpoint_best"] for c in checkpoints.find(run)}
    if split == "test":
        assert saved == {5: None}
        assert runs.checkpoint_best(run) is None
        return
    best = {
        step: {"checkpoint": f"checkpoint-{step}", "accuracy": accuracy, "on": "validation"}
        for step, accuracy in ((1, 0.2), (2, 0.6), (4, 0.8))
    }
    assert saved == best
    assert runs.checkpoint_best(run) == best[4]
    assert "4 steps" in done.stdout
    assert "best on validation: checkpoint-4" in done.stdout
    again = processes.run(tmp_path / "again", *arguments, *stop, fault=scripted_grades)
    assert "4 steps" in again.stdout  # it stays ended
    further = processes.run(tmp_path / "further", *arguments, fault=scripted_grades)
    assert "5 steps" in further.stdout
    assert runs.checkpoint_best(run) == best[4]  # 0.2 at step 5 is no better


def assert_records(run) -> None:
    """One line an evaluation, beside the metrics and equal to them."""
    metrics = read_metrics(run / "metrics.jsonl")
    records = read_metrics(run / "evaluations.jsonl")
    assert [r["step"] for r in records] == [line["step"] for line in metrics] == [1, 2, 3, 4]
    for record, line in zip(records, metrics, strict=True):
        shared = {k: v for k, v in line.items() if k.startswith("eval/")}
        assert shared == {k: v for k, v in record.items() if k.startswith("eval/")}
        for name, values in (
            ("accuracy", "correct"),
            ("well_formed", "well_formed"),
            ("completion_length_mean", "tokens"),
            ("clipped_ratio", "clipped"),
        ):
            assert len(record[values]) == 5
            assert record[f"eval/{name}"] == np.mean(record[values])
        assert (record["task"], record["split"]) == ("arithmetic", "test")
        assert 1 <= record["eval/completion_length_mean"] <= 8


def test_two_ranks_share_the_questions_and_a_resumed_run_has_each_evaluation_once(tmp_path):
    arguments = [*SETTINGS, f"output_dir={tmp_path}", *EVALUATION]
    first = two_ranks.run(tmp_path, *arguments, "max_steps=3")
    assert [p.returncode for p in first] == [0, 0], first[0].stderr
    again = two_ranks.run(tmp_path, *arguments, f"resume={tmp_path / 'r' / 'checkpoint-2'}")
    assert [p.returncode for p in again] == [0, 0], again[0].stderr
    assert_records(tmp_path / "r")
