"""pods/figures/arms.py and questions.py: which runs are averaged, and the scores of questions."""

from pathlib import Path
from typing import Any

import pytest

from pods.config.errors import UserError
from pods.figures import curves, questions, speedup
from pods.figures.definition import Comparison, Unlike
from tests.figures import facts_file, figure, record_files, run_file

UNLIKE = [
    pytest.param({"optimizer": {"learning_rate": 0.002}}, "optimizer.learning_rate", id="lr"),
    pytest.param({"budget": {"train_seconds": 60.0}}, "budget.train_seconds", id="budget"),
    pytest.param({"task": {"name": "math"}}, "task.name", id="task"),
    pytest.param({"model": {"name": "qwen", "path": "x"}}, "model.name", id="model"),
    pytest.param({"prompts_per_step": 1}, "prompts_per_step", id="prompts a step"),
    pytest.param({"questions": 32}, "questions", id="questions of the evaluation"),
]


@pytest.mark.parametrize(("change", "key"), UNLIKE)
def test_unlike_runs_are_refused_or_split(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    for i, changes in enumerate([{}, {}, change]):
        run_file(tmp_path, f"grpo-{i}", [0.1, 0.2, 0.3, 0.4 + 0.1 * i])
        facts_file(tmp_path, f"grpo-{i}", **{"seed": 2 - i} | changes)
    with pytest.raises(Unlike, match=f"runs of GRPO differ in {key}: .* in grpo-0, grpo-1"):
        curves.load(figure(), tmp_path)
    if key == "model.name":
        return  # the path differs too
    first, second = curves.load(figure(split_by=[key]), tmp_path)
    assert (first.runs, second.runs) == (["grpo-1", "grpo-0"], ["grpo-2"]), "in order of the seed"
    assert first.seeds == [1, 2]
    assert second.label.startswith(f"GRPO {key.rpartition('.')[2]}=")


def test_unlike_repeats_are_refused_where_the_runs_are_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file(tmp_path, "grpo-0", [[0.1] * 5, 0.2, 0.3, 0.4])
    run_file(tmp_path, "grpo-1", [0.1, 0.2, 0.3, 0.4])
    curves.load(figure(), tmp_path)
    assert "runs of GRPO differ in repeats: 5 in grpo-0; 2 in grpo-1; averaged" in (
        capsys.readouterr().err
    )
    for i in (0, 1):
        facts_file(tmp_path, f"grpo-{i}", model={"name": "tiny", "path": f"/home/{i}/policy"})
    with pytest.raises(Unlike, match="differ in repeats"):
        curves.load(figure(), tmp_path)
    with pytest.raises(UserError, match=r"figure.split_by=\[lr\]: grpo-0 has no such setting"):
        curves.load(figure(split_by=["lr"]), tmp_path)


def test_the_score_of_every_question_is_read_where_it_is_recorded(tmp_path: Path) -> None:
    for label, answers in (("grpo", [True, False, False]), ("pods", [True, True, False])):
        for seed in (0, 1):
            name = f"{label}-{seed}"
            run_file(tmp_path, name, [0.1, 0.2, 0.3, 0.4])
            facts_file(tmp_path, name, seed=seed)
            record_files(tmp_path, name, [200, 300, 400], answers if seed else [*answers[::-1]])
    arms = curves.load(figure(), tmp_path)
    grpo, pods = questions.scores(arms, marks=4)
    assert grpo.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert pods.tolist() == [[0, 1, 1], [1, 1, 0]]
    found = speedup.compare(*arms, Comparison(0.99, None, 10, 0)).level_by_question
    assert (found.difference, found.paired) == (pytest.approx(1 / 3), True)
    assert questions.scores(curves.load(figure(metric="both_acc"), tmp_path), 4)[0].sum() == 0
    questions._of_run.cache_clear()
    (tmp_path / "grpo-0" / "checkpoint-300" / "gsm8k" / "repeat-0.jsonl").write_text("{")
    assert questions.scores(arms, marks=4) == []
