"""Scores taken while training: from evaluations.jsonl to results/<run>.json and to the figure."""

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pods.clock import Clock
from pods.runs import results
from tests.fake_run import make_run
from tests.figures import export_files, in_process, run_file

RUN = "gsm8k_h100-pods-max_variance-n512-m128-seed0"
SCORES = {"correct": [1, 0, 1, 0], "well_formed": [0, 1, 1, 1], "clipped": [0, 0, 0, 1]}
FROM_TRAINING = ("evaluate_run.py", f"run={RUN}", "from_training=true")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of setting (e) without a checkpoint, evaluated after its steps 3 and 5."""
    monkeypatch.chdir(tmp_path)
    folder = make_run(Path("checkpoints"), RUN, steps=(), experiment="gsm8k_h100")
    write(folder / "evaluations.jsonl", [evaluation(3, 130.0), evaluation(5, 250.0)])
    tokens = {"tokens/generated": 900, "tokens/trained": 300}
    write(folder / "metrics.jsonl", [{"step": 3, **tokens}])
    (folder / "meta.json").write_text('{"git_commit": "abc", "gpu": "H100"}')
    return folder


def evaluation(step: int, seconds: float, **changes: Any) -> dict[str, Any]:
    """A line as pods/evaluation/midrun.py writes it, of four questions."""
    line = {"step": step, "train_seconds": seconds, "task": "gsm8k", "split": "test"}
    return line | {"tokens": [10, 20, 30, 40]} | SCORES | changes


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


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
        "both_acc": [0.25],  # one answer of four is right and well formed
        "lengths": [25.0],
        "examples": [],
    }
    meta = content["checkpoint-3"]["meta"]
    assert (meta["train_seconds"], meta["tokens_generated"], meta["tokens_trained"]) == (
        130.0,
        900,
        300,
    )
    assert "tokens_generated" not in content["checkpoint-5"]["meta"]  # killed before its metrics
    assert meta["scores"]["gsm8k"]["truncated"]["mean"] == 0.25
    interval = meta["scores"]["gsm8k"]["rewards"]["strict"]["both"]
    assert interval["low"] < interval["mean"] == 0.25 < interval["high"]
    facts = json.loads(Path(f"results/{RUN}.meta.json").read_text())
    assert facts["tasks"] == {"gsm8k": {"split": "test", "questions": 4}}
    assert (facts["train"]["experiment"], facts["gpu"]) == ("gsm8k_h100", "H100")
    shown = capsys.readouterr().out
    assert "step 5" in shown
    assert "graded by strict" in shown


def test_a_resumed_runs_results_replace_those_of_before(run: Path) -> None:
    assert in_process(*FROM_TRAINING) == 0
    write(run / "evaluations.jsonl", [evaluation(3, 130.0), evaluation(6, 260.0)])
    assert in_process(*FROM_TRAINING) == 0
    assert list(results.read(f"results/{RUN}.json")) == [3, 6]


def torn(run: Path) -> None:
    path = run / "evaluations.jsonl"
    path.write_text(path.read_text()[:-20])


def without_format(run: Path) -> None:
    line = evaluation(3, 130.0)
    del line["well_formed"]
    write(run / "evaluations.jsonl", [line])


def of_two_lengths(run: Path) -> None:
    write(run / "evaluations.jsonl", [evaluation(3, 130.0, tokens=[1])])


def of_no_number(run: Path) -> None:
    write(run / "evaluations.jsonl", [evaluation(3, 130.0, tokens=[None] * 4)])


def of_no_question(run: Path) -> None:
    empty = {"tokens": [], "correct": [], "well_formed": [], "clipped": []}
    write(run / "evaluations.jsonl", [evaluation(3, 130.0, **empty)])


def of_other_questions(run: Path) -> None:
    """A resumed run may change evaluation.questions and evaluation.split."""
    lines = [evaluation(3, 130.0), evaluation(5, 250.0, split="validation")]
    write(run / "evaluations.jsonl", lines)


def never_evaluated(run: Path) -> None:
    (run / "evaluations.jsonl").unlink()


def published(run: Path) -> None:
    Path("results").mkdir()
    run_file(Path("results"), RUN, [0.5])


def nothing(run: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("spoil", "overrides", "said"),
    [
        (never_evaluated, [], "train with evaluation.every_seconds=120"),
        (torn, [], "evaluations.jsonl:2: incomplete evaluation"),
        (without_format, [], "evaluations.jsonl:1: incomplete evaluation"),
        (of_two_lengths, [], "evaluations.jsonl:1: incomplete evaluation"),
        (of_no_number, [], "evaluations.jsonl:1: incomplete evaluation"),
        (of_no_question, [], "evaluations.jsonl:1: incomplete evaluation"),
        (of_other_questions, [], "(4 of gsm8k/test; 4 of gsm8k/validation); leave"),
        (published, [], "was not written by evaluate_run.py"),
        (nothing, ["select_on=validation"], "from_training=true select_on=validation"),
        (nothing, ["tasks=math500"], "from_training=true tasks=math500"),
        (nothing, ["temperature=0"], "from_training=true temperature=0"),
        (nothing, ["repeats=4"], "from_training=true repeats=4"),
        (nothing, ["run=null"], "from_training=true run=null: name the run"),
        (nothing, ["run=typo"], f"it has {RUN}"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    run: Path, capsys: pytest.CaptureFixture[str], spoil: Any, overrides: list[str], said: str
) -> None:
    spoil(run)
    before = tree(Path())
    assert in_process(*FROM_TRAINING, *overrides) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert tree(Path()) == before


@pytest.mark.parametrize("first", [True, False], ids=["training first", "checkpoints first"])
def test_scores_of_training_and_of_checkpoints_never_overwrite_each_other(
    run: Path, capsys: pytest.CaptureFixture[str], first: bool
) -> None:
    make_run(Path("checkpoints"), "both", steps=(2,))
    write(Path("checkpoints/both/evaluations.jsonl"), [evaluation(2, 5.0, task="arithmetic")])
    ways = [
        ["evaluate_run.py", "run=both", "from_training=true"],
        ["evaluate_run.py", "run=both", "repeats=1", "pass_at=[1]", "max_tokens=1"],
    ]
    one, other = ways if first else reversed(ways)
    assert in_process(*one) == 0
    before = tree(Path("results"))
    capsys.readouterr()
    assert in_process(*other) == 2
    error = capsys.readouterr().err
    assert "results_dir=results: holds scores of both from" in error.splitlines()[-1]
    assert tree(Path("results")) == before
    assert in_process(*other, "results_dir=elsewhere") == 0


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


def h100s(folder: Path) -> None:
    """Results of both arms, two seeds each, evaluated every two minutes of steps of 20 to 60 s."""
    for arm, best, pace in (
        ("grpo_ga-all-n512-m512", 0.8, ([59.5], [41, 60, 52])),
        ("pods-max_variance-n512-m128", 0.85, ([20], [23, 37, 31])),
    ):
        for seed, seconds_per_step in enumerate(pace):
            at = times(seconds_per_step)
            accuracies = [best * (1 - np.exp(-s / 600)) + 0.01 * seed for s in at]
            metas = [{"train_seconds": s} for s in at]
            run_file(folder, f"gsm8k_h100-{arm}-seed{seed}", accuracies, metas=metas)


def test_a_run_evaluated_every_two_minutes_has_one_score_at_every_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    h100s(tmp_path)
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
    assert (tmp_path / "figures" / "h100s" / "main.png").is_file()
    assert in_process(*arguments, f"out_dir={tmp_path}/both", "metric=both_acc") == 0


def test_the_published_export_comes_before_our_own_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    h100s(tmp_path)
    samples = [(minute, 0.1) for minute in range(2, 32, 2)]
    runs = {f"GRPO-s1-p8-{arm}": samples for arm in ("n32-m32-ga16", "n128-m32-ga4")}
    export_files(tmp_path, "h100s", runs)
    out = f"out_dir={tmp_path}/figures"
    assert in_process("scripts/plot.py", "figure=h100s", f"results_dir={tmp_path}", out) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "drawn from h100s-acc.csv, without gsm8k_h100-grpo_ga-all-n512-m512-seed0" in warning
    content = json.loads((tmp_path / "figures" / "h100s" / "curves.json").read_text())
    assert content["series"]["GRPO-GA"]["mean"] == pytest.approx([0.1] * 15)
