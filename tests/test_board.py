"""The board: an algorithm against itself differs by exactly 0, and nothing is trained twice."""

import json
import re

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pods import files
from pods.figures import ranking
from tests import processes
from tests.conftest import ROOT

OWN = """
def mine(step):
    batch = yield step.prompts, step.m
    return list(range(len(batch)))
"""
TUNED = {"seed": 0, "budget": 1200.0, "clock": "l40s", "greedy": [0.5], "commit": "0"}


def play(folder, *overrides):
    folders = [f"output_dir={folder / 'runs'}", f"results_dir={folder}", f"out_dir={folder}"]
    few = 'settings=["logger=[]","threads=1","evaluation.questions=16"]'
    settings = ["budget=12", "seeds=2", few, *folders]
    return processes.run(folder, *overrides, *settings, script="benchmarks/board.py")


def tuned(folder, **cells):
    """The better cell of each arm is the last one."""
    lines = [
        json.dumps(TUNED | {"arm": arm, "cell": cell, "accuracy": [0.1 * place]})
        for arm, own in cells.items()
        for place, cell in enumerate(own)
    ]
    (folder / "tune.jsonl").write_text("\n".join(lines) + "\n")


def test_an_algorithm_against_itself_differs_by_exactly_nothing(tmp_path):
    tuned(tmp_path, grpo=[[1, 2, 2, 1e-3], [2, 2, 2, 1e-3]], pods=[[2, 4, 2, 1e-3]])
    (tmp_path / "mine.py").write_text(OWN)
    words = (f"{tmp_path / 'mine.py'}:mine", "cell=[2,2,2,1e-3]", "world=noisy", "json=true")
    done = play(tmp_path, *words)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["world"], result["seeds"]) == ("noisy", [100, 101])
    for metric in (result["against"], result["greedy"]):
        assert metric["grpo"] == {"difference": 0.0, "ci95": [0.0, 0.0]}
        low, high = metric["pods"]["ci95"]
        assert low <= metric["pods"]["difference"] <= high
    assert re.findall(r"(\d) of 6: ", done.stderr) == [*"123456"]  # also where it is piped
    assert not (tmp_path / "report.jsonl").exists(), "the published results stay as they are"
    stored = files.read_lines(tmp_path / "runs" / "report.jsonl")
    assert sorted((line["arm"].rpartition(":")[2], line["seed"]) for line in stored) == [
        ("grpo", 100), ("grpo", 101), ("mine", 100), ("mine", 101), ("pods", 100), ("pods", 101),
    ]  # fmt: skip
    assert {line["world"] for line in stored} == {"noisy"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", line["date"]) for line in stored)
    assert {line["cell"][0] for line in stored} == {2}  # the better cell of tuning
    (tmp_path / "mine.py").write_text("raise SystemExit('is not trained again')\n")
    assert play(tmp_path, *words).stdout == done.stdout


def test_all_worlds_are_a_line_each_and_one_of_their_mean(tmp_path):
    cell = [2, 4, 2, 1e-3]
    tuned(tmp_path, grpo=[cell], pods=[cell])
    lines = []
    for world, gain in (("sums", 0.1), ("noisy", 0.3)):
        for seed in (100, 101):
            for arm, accuracy in (("grpo", 0.4), ("pods", 0.5), ("my.py:mine", 0.5 + gain)):
                line = TUNED | {"arm": arm, "seed": seed, "cell": cell, "world": world}
                line |= {"budget": 12.0, "accuracy": [accuracy] * 12, "greedy": [accuracy] * 12}
                lines.append(json.dumps(line) + "\n")
    (tmp_path / "report.jsonl").write_text("".join(lines))
    shown = play(tmp_path, "my.py:mine", "world=all", "worlds=[sums,noisy]", "json=true").stdout
    results = [json.loads(line) for line in shown.splitlines()[-3:]]
    assert [result["world"] for result in results] == ["sums", "noisy", "all"]
    gains = [result["against"]["pods"]["difference"] for result in results]
    assert gains == pytest.approx([10, 30, 20])
    assert "all: my.py:mine - pods, temperature 1: +20.0 [+20.0, +20.0]: ahead of pods" in shown


def test_holm_multiplies_the_smallest_p_by_the_number_of_comparisons():
    rng = np.random.default_rng(0)
    marks = {arm: rng.normal(mean, 1, (8, 3)) for arm, mean in (("grpo", 0), ("a", 2), ("b", 0.1))}
    marks["pods"] = marks["grpo"]
    raw = {a: ttest_rel(marks[a].mean(1), marks["grpo"].mean(1)).pvalue for a in "ab"}
    adjusted = ranking.holm("grpo", marks)
    assert adjusted == pytest.approx({"a": 2 * raw["a"], "b": max(2 * raw["a"], raw["b"])})
    rows = ranking.table(dict.fromkeys(marks, ranking.Cell(1, 2, 2, 1e-3)), marks).splitlines()[2:]
    assert re.match(r"\| a +\|", rows[0])
    assert any("+0.0 [+0.0, +0.0]" in row and row.startswith("| pods") for row in rows)


def test_the_tables_in_the_docs_are_those_of_the_stored_runs(tmp_path):
    settings = {"script": "benchmarks/board.py", "cwd": ROOT}
    shown = processes.run(tmp_path, f"out_dir={tmp_path}", **settings).stdout
    assert shown.strip() in (ROOT / "docs" / "board.md").read_text()
    said = re.search(r"(?s)- In that world,.*?\n\n", (ROOT / "README.md").read_text())[0]
    numbers = {*re.findall(r"\d+\.\d+", said)}
    assert len(numbers) == 9
    assert numbers <= {*re.findall(r"\d+\.\d+", shown)}


def test_pods_with_more_prompts_is_stored():
    runs = files.read_lines(ROOT / "benchmarks" / "results" / "board" / "wide.jsonl")
    unseen = [run for run in runs if run["seed"] >= 100]
    assert [run["cell"] for run in unseen] == [[16, 4, 2, 0.002]] * 10
    sampled, greedy = (100 * np.mean([run[x] for run in unseen]) for x in ("accuracy", "greedy"))
    page = " ".join((ROOT / "docs" / "board.md").read_text().split())
    assert f"mean of {sampled:.1f} % at temperature 1 and of {greedy:.1f} % greedily" in page


def test_a_function_that_fails_is_named_before_anything_trains(tmp_path):
    tuned(tmp_path, grpo=[[2, 2, 2, 1e-3]], pods=[[2, 4, 2, 1e-3]])
    (tmp_path / "mine.py").write_text(OWN.replace("len(batch)", "len(batch.logprobs)"))
    folders = [f"output_dir={tmp_path / 'runs'}", f"results_dir={tmp_path}"]
    done = processes.run(
        tmp_path, "mine.py:mine", *folders, "seeds=2", script="benchmarks/board.py", code=2
    )
    line = done.stderr.splitlines()[-1]
    assert "algorithm mine failed at step 0 at mine.py:4: TypeError(" in line
    assert "with mine.reads_logprobs = True below it" in line
    assert not (tmp_path / "runs").exists()
