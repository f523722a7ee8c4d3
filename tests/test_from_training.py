"""Scores taken while training: from evaluations.jsonl to results/<run>.json and to the figure."""

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pods.clock import Clock
from pods.config.errors import UserError
from pods.evaluation.targets import Store
from pods.runs import results
from tests.fake_run import make_run
from tests.figures import in_process, run_file

RUN = "gsm8k_h100-pods-max_variance-n512-m128-seed0"
SCORES = {"correct": [1, 0, 1, 0], "well_formed": [0, 1, 1, 1], "clipped": [0, 0, 0, 1]}
FROM_TRAINING = ("evaluate_run.py", f"run={RUN}", "from_training=true")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of setting (e) without a checkpoint, evaluated after its steps 3 and 5."""
    monkeypatch.chdir(tmp_path)
    folder = make_run(Path("checkpoints"), RUN, steps=(), experiment="gsm8k_h100")
    write(folder, evaluation(3, 130.0), evaluation(5, 250.0))
    (folder / "meta.json").write_text('{"git_commit": "abc", "gpu": "H100"}')
    return folder


def evaluation(step: int, seconds: float, **changes: Any) -> dict[str, Any]:
    """A line as pods/evaluation/midrun.py writes it, of four questions."""
    line = {"step": step, "train_seconds": seconds, "task": "gsm8k", "split": "test"}
    line |= {"tokens/generated": 300 * step, "tokens/trained": 100 * step}
    return line | {"tokens": [10, 20, 30, 40]} | SCORES | changes


def write(run: Path, *lines: dict[str, Any]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "evaluations.jsonl").write_text(text + '{"step": 7, "tra')  # torn by a kill


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_every_evaluation_is_a_checkpoint_of_the_published_schema(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(*FROM_TRAINING) == 0
    content = json.loads(Path(f"results/{RUN}.json").read_text())
    assert list(content) == ["checkpoint-3", "checkpoint-5"]
    assert content["checkpoint-3"]["gsm8k"] == {
        "ans_acc": [0.5],
        "for_acc": [0.75],
        "both_acc": [0.25],  # one answer of four is correct and well formed
        "lengths": [25.0],
        "examples": [],
    }
    meta = content["checkpoint-3"]["meta"]
    names = ("train_seconds", "tokens_generated", "tokens_trained")
    assert [meta[name] for name in names] == [130.0, 900, 300]
    assert meta["scores"]["gsm8k"]["clipped"]["mean"] == 0.25
    interval = meta["scores"]["gsm8k"]["rewards"]["strict"]["both"]
    assert interval["low"] < interval["mean"] == 0.25 < interval["high"]
    facts = json.loads(Path(f"results/{RUN}.meta.json").read_text())
    assert facts["tasks"] == {"gsm8k": {"split": "test", "questions": 4}}
    assert (facts["train"]["experiment"], facts["gpu"]) == ("gsm8k_h100", "H100")
    shown = capsys.readouterr().out
    assert "step 5" in shown
    assert "graded by strict" in shown
    with pytest.raises(UserError, match=r"from its training .* choose another results_dir"):
        Store("results", RUN).claim({"math500": {"seed": 0}}, {})
    write(run, evaluation(3, 130.0), evaluation(6, 260.0))  # resumed at step 3
    assert in_process(*FROM_TRAINING) == 0
    assert list(results.read(f"results/{RUN}.json")) == [3, 6]


def scored_from_checkpoints(run: Path) -> None:
    store = Store("results", RUN)
    store.claim({"math500": {"seed": 0}}, {})
    store.write_facts()


def published(run: Path) -> None:
    Path("results").mkdir()
    run_file(Path("results"), RUN, [0.5])


OTHER = evaluation(5, 250.0, split="validation")  # a resumed run may change it
MISTAKES = [
    (lambda run: (run / "evaluations.jsonl").unlink(), "", "train with evaluation.every_seconds="),
    (lambda run: write(run, evaluation(3, 130.0), OTHER), "", "(4 of gsm8k/test; 4 of gsm8k/valid"),
    (published, "", "was not written by evaluate_run.py"),
    (scored_from_checkpoints, "", "from its checkpoints, which are not mixed"),
    (lambda _: None, "tasks=math500", "from_training=true tasks=math500: nothing is generated"),
    (lambda _: None, "run=null", "from_training=true: a base model has no checkpoints; set run"),
]


@pytest.mark.parametrize(("spoil", "override", "said"), MISTAKES, ids=[m[2] for m in MISTAKES])
def test_mistakes_are_one_line_and_write_nothing(
    run: Path, capsys: pytest.CaptureFixture[str], spoil: Any, override: str, said: str
) -> None:
    spoil(run)
    before = tree(Path())
    assert in_process(*FROM_TRAINING, *override.split()) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error
    assert tree(Path()) == before


def times(seconds_per_step: list[float]) -> list[float]:
    """train_seconds of the evaluations of a 30-minute run, as pods/training/loop.py times them."""
    now = [0.0]
    clock = Clock(lambda: now[0])
    found = []
    for seconds in cycle(seconds_per_step):
        clock.start_step()
        now[0] += seconds
        clock.end_step()
        if clock.passed_mark(120):
            found.append(clock.train_seconds)
        if clock.train_seconds >= 1800:
            return found


def test_a_run_evaluated_every_two_minutes_has_one_score_at_every_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two seeds of both arms, in steps of 20 to 60 s."""
    for arm, best, pace in (
        ("grpo_ga-all-n512-m512", 0.8, ([59.5], [41, 60, 52])),
        ("pods-max_variance-n512-m128", 0.85, ([20], [23, 37, 31])),
    ):
        for seed, seconds_per_step in enumerate(pace):
            at = times(seconds_per_step)
            accuracies = [best * (1 - np.exp(-s / 600)) + 0.01 * seed for s in at]
            metas = [{"train_seconds": s} for s in at]
            run_file(tmp_path, f"gsm8k_h100-{arm}-seed{seed}", accuracies, metas=metas)
    # Of another experiment, with the n and m of the published names.
    run_file(tmp_path, "gsm8k_qwen-pods-max_variance-n128-m32-seed0", [0.1])
    arguments = ["scripts/plot.py", "figure=h100s", f"results_dir={tmp_path}"]
    assert in_process(*arguments, f"out_dir={tmp_path}/figures") == 0
    assert capsys.readouterr().err == ""
    content = json.loads((tmp_path / "figures" / "h100s" / "curves.json").read_text())
    assert list(content["series"]) == ["GRPO-GA", "GRPO-PODS"]
    for line in content["series"].values():
        assert line["time_hours"] == pytest.approx([k / 30 for k in range(1, 16)])
        assert line["n_runs"] == [2] * 15
