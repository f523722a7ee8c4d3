"""Scores taken while training: from evaluations.jsonl to results/<run>.json and to the figure."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pods.config.errors import UserError
from pods.evaluation.scores import summary
from pods.evaluation.targets import Store
from pods.runs import results
from tests.fake_run import make_run
from tests.figures import in_process, refused

RUN = "gsm8k_h100-pods-max_variance-n512-m128-seed0"
FROM_TRAINING = ("evaluate_run.py", f"run={RUN}", "from_training=true")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of setting (e) without a checkpoint, evaluated after its steps 3 and 5."""
    monkeypatch.chdir(tmp_path)
    folder = make_run(Path("checkpoints"), RUN, steps=(), experiment="gsm8k_h100")
    write(folder, evaluation(3, 130.0), evaluation(5, 250.0))
    (folder / "meta.json").write_text('{"git_commit": "abc", "gpu": "H100"}')
    return folder


def evaluation(step: int, seconds: float, split: str = "test") -> dict[str, Any]:
    """A line as pods/evaluation/midrun.py writes it, of four questions."""
    columns = [(1, 0, 1, 0), (0, 1, 1, 1), (0, 0, 0, 1), (10, 20, 30, 40)]
    records = [
        {"correct": {"strict": correct}, "well_formed": formed, "clipped": clip, "tokens": tokens}
        for correct, formed, clip, tokens in zip(*columns, strict=True)
    ]
    entry, details = summary([records], ["strict"])
    line = {"step": step, "train_seconds": seconds, "task": "gsm8k", "split": split}
    line |= {"tokens/generated": 300 * step, "tokens/trained": 100 * step}
    return line | {"entry": asdict(entry), "scores": details}


def write(run: Path, *lines: dict[str, Any]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "evaluations.jsonl").write_text(text + '{"step": 7, "tra')  # torn by a kill


def test_every_evaluation_is_a_checkpoint_of_the_published_schema(run):
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
    details = evaluation(3, 130.0)["scores"]
    assert meta["scores"] == {"gsm8k": details}
    facts = json.loads(Path(f"results/{RUN}.meta.json").read_text())
    assert facts["tasks"] == {"gsm8k": {"split": "test", "questions": 4}}
    assert (facts["train"]["experiment"], facts["gpu"]) == ("gsm8k_h100", "H100")
    with pytest.raises(UserError, match=r"taken in training .* choose another results_dir"):
        Store("results", RUN).claim({"math500": {"seed": 0}}, {})
    write(run, evaluation(3, 130.0), evaluation(6, 260.0))  # resumed at step 3
    assert in_process(*FROM_TRAINING) == 0
    assert list(results.read(f"results/{RUN}.json")) == [3, 6]


OTHER = evaluation(5, 250.0, "validation")  # a resumed run may change it
OLD = {"step": 5, "correct": [1, 0]}  # a line of an earlier version
MISTAKES = [
    (lambda run: (run / "evaluations.jsonl").unlink(), "", "has no evaluation; score"),
    (lambda run: write(run, evaluation(3, 130.0), OTHER), "", "has evaluations of different quest"),
    (lambda run: write(run, evaluation(3, 130.0), OLD), "", "made by an earlier version; score"),
    (lambda _: None, "tasks=math500", "from_training=true tasks=math500: nothing is generated"),
    (lambda _: None, "run=null", "from_training=true: a base model has no checkpoints; set run"),
]


@pytest.mark.parametrize(("spoil", "override", "said"), MISTAKES, ids=[m[2] for m in MISTAKES])
def test_mistakes_are_one_line_and_write_nothing(run, capsys, spoil, override, said):
    spoil(run)
    assert said in refused(capsys, *FROM_TRAINING, *override.split())
