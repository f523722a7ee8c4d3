"""The page of several runs: seconds by phase, and questions that two arms answer unlike."""

import json
from pathlib import Path

import numpy as np
import pytest

from pods.figures import report, several
from pods.figures.curves import Series
from pods.runs import results
from pods.runs.ledger import Ledger
from pods.runs.results import Checkpoint, Entry
from tests.figures import in_process
from tests.steps import step_of


def run(folder: Path, name: str, right: list[int], update: float, seed: int = 0) -> None:
    """Steps of one question each with 4 rollouts, of which the first right[step] are right."""
    path = folder / "checkpoints" / name
    path.mkdir(parents=True)
    book, lines = Ledger(path / "rollouts.jsonl.gz", "all"), []
    for step, count in enumerate(right, start=1):
        rewards = (np.arange(4) < count).astype(float)
        texts = [f"{name} step {step} rollout {i}" for i in range(4)]
        book.append(step, step_of({f"q{step}": rewards}, [0, 1], texts))
        seconds = {"generate": 1.0, "score": 0.0, "select": 0.0, "update": update}
        lines.append(json.dumps({f"seconds/{k}": v for k, v in seconds.items()} | {"step": step}))
    book.flush()
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    scored = {
        step: Checkpoint({"sums": Entry(ans_acc=[count / 4])}, {"train_seconds": 5.0 * step})
        for step, count in enumerate(right, start=1)
    }
    (folder / "results").mkdir(exist_ok=True)
    results.write(folder / "results" / f"{name}.json", scored)
    facts = {"train": {"seed": seed, "checkpoint": {"every_seconds": 5.0}}}
    (folder / "results" / f"{name}.meta.json").write_text(json.dumps(facts))


def arm(label: str, *names: str, seeds: list[int | None]) -> Series:
    return Series(label, None, [*names], {}, np.zeros(0), True, seeds=seeds)


def test_the_most_unlike_question_comes_first_with_one_rollout_of_each(tmp_path):
    run(tmp_path, "a-seed0", [1, 0, 2], 0.5)
    run(tmp_path, "b-seed0", [1, 3, 1], 2.0)
    folder = tmp_path / "checkpoints"
    arms = (arm("A", "a-seed0", seeds=[0]), arm("B", "b-seed0", seeds=[0]))
    rows = several.differences(*arms, folder)
    assert [(row["step"], row["A: right"], row["B: right"]) for row in rows] == [
        ("2", "0 of 4", "3 of 4"),
        ("3", "2 of 4", "1 of 4"),
    ]  # fmt: skip  the first step is alike
    assert rows[0]["A: one rollout"] == "a-seed0 step 2 rollout 0"  # wrong in A, right in B
    assert rows[1]["A: one rollout"] == "a-seed0 step 3 rollout 1"  # rollout 0 is right in both
    assert rows[0]["question"] == "q2?"
    assert several.phases([*arms], folder) == [
        {"arm": "A", "steps": "3", "generate, s": "1", "score, s": "0", "select, s": "0",
         "update, s": "0.5", "step, s": "1.5"},
        {"arm": "B", "steps": "3", "generate, s": "1", "score, s": "0", "select, s": "0",
         "update, s": "2", "step, s": "3"},
    ]  # fmt: skip


def test_runs_of_other_seeds_or_without_folders_are_not_compared(tmp_path):
    run(tmp_path, "a-seed0", [1, 0], 0.5)
    run(tmp_path, "b-seed1", [1, 3], 0.5, seed=1)
    first, folder = arm("A", "a-seed0", seeds=[0]), tmp_path / "checkpoints"
    for second in (
        arm("B", "b-seed1", seeds=[1]), arm("B", "absent", seeds=[0]), arm("B", "b", seeds=[None])
    ):  # fmt: skip
        assert several.differences(first, second, folder) == []
    assert several.phases([arm("C", "absent", seeds=[0])], folder) == []


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    tmp_path = tmp_path_factory.mktemp("several")
    for seed in (0, 1):
        run(tmp_path, f"a-seed{seed}", [0, 1, 2], 0.5, seed)
        run(tmp_path, f"b-seed{seed}", [1, 3, 4], 1.0, seed)
    keys = [f"output_dir={tmp_path}/checkpoints", f"results_dir={tmp_path}/results"]
    keys += [f"out_dir={tmp_path}", "runs={A: [a-*], B: [b-*]}"]
    assert in_process("scripts/report.py", *keys) == 0
    return tmp_path / "runs.html"


def test_a_button_copies_its_table(browser, page):
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = context.new_page()
    shown.goto(page.as_uri())
    assert shown.locator(".js-plotly-plot").count() == 1
    buttons = shown.locator("section", has_text="Seconds of a step").locator("button.copy")
    for number, start in enumerate(("| arm | steps |", r"\begin{tabular}")):
        buttons.nth(number).click()
        buttons.nth(number).filter(has_text="Copied").wait_for()
        assert shown.evaluate("navigator.clipboard.readText()").startswith(start)
    context.close()


def test_the_command_compares_runs_without_a_figure(page):
    page = page.read_text()
    assert "Where B and A differ" in page
    assert "<td>B vs A</td>" in page
    assert "Seconds of a step" in page
    assert page.count('class="copy"') == 6  # three tables as Markdown and as LaTeX
    assert r"\toprule" in page


def test_the_text_of_a_button_is_data(tmp_path):
    hostile = '"><script>window.hacked = 1</script>'
    assert "<script>" not in report._copies([{"arm": hostile}])
