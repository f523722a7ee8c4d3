"""The board: an algorithm against itself differs by exactly 0, and nothing is trained twice."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas
import pytest
from scipy.stats import ttest_rel

from benchmarks import board
from pods.config import command
from pods.figures import statistics
from tests.conftest import ROOT
from tests.figures import printed, refused

OWN = """
def mine(step):
    batch = yield step.prompts, step.m
    return list(range(len(batch)))
"""
SCRIPT = "benchmarks/board.py"
LINE = {"seed": 0, "budget": 12.0, "clock": "l40s", "world": "sums", "commit": "0"}


def config_of(*overrides):
    composed = command.compose("board", [*overrides], command.CONFIG_DIR / "benchmarks")
    return command.typed(board.BoardConfig, composed)


def results(arms, **facts):
    """Lines of seeds 100 and 101 for {arm: (cell, accuracy)}."""
    lines = []
    for (arm, (cell, accuracy)), seed in product(arms.items(), (100, 101)):
        line = LINE | {"arm": arm, "cell": cell, "seed": seed} | facts
        lines.append(line | dict.fromkeys(("accuracy", "greedy"), [accuracy] * 12))
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize(
    ("arm", "overrides", "expected"),
    [
        ("dapo", ["world=hard"], [16, 4, 4, 8e-3]),
        ("dapo", ["world=sums", "clock=h100s"], [16, 4, 4, 4e-3]),
        ("grpo_ga", ["world=hard"], [4, 16, 16, 2e-3]),
        ("my.py:f", ["world=noisy"], [8, 8, 4, 2e-3]),
        ("my.py:f", ["algorithm=my.py:f", "cell=[1,2,2,.1]"], [1, 2, 2, 0.1]),
        ("pods", ["algorithm=my.py:f", "cell=[1,2,2,.1]"], [16, 4, 2, 2e-3]),
    ],
)
def test_a_cell_is_that_of_the_world_or_the_clock_else_of_sums(arm, overrides, expected):
    config = config_of(*overrides)
    setting = board.Setting(config.budget, config.clock, config.world)
    assert {training.cell for training in config.trainings(arm, setting)} == {tuple(expected)}


def test_every_arm_has_ten_published_results_at_each_of_its_cells():
    config = config_of(f"results_dir={ROOT / 'benchmarks/results/board'}", "output_dir=none")
    stored = board.stored(config)
    prices = {"h100s": 27.0, "fast_generation": 590.0}
    for name, arm in config.arms.items():
        for place, cell in arm.cells.items():
            setting = board.Setting(1200.0, "l40s", place)
            if place in prices:
                setting = board.Setting(prices[place], place, "sums")
            for seed in board.SEEDS[:10]:
                assert board.Training(name, cell, seed, setting) in stored


@pytest.fixture
def three_arms(tmp_path, monkeypatch):
    """Stored runs of GRPO, of PODS 10 points above it, and of an algorithm another 10 above."""
    monkeypatch.chdir(tmp_path)
    cell = [16, 4, 2, 2e-3]
    arms = {"grpo": ([16, 4, 4, 2e-3], 0.4), "pods": (cell, 0.5), "my.py:f": (cell, 0.6)}
    Path("report.jsonl").write_text(results(arms))


@pytest.mark.usefixtures("three_arms")
def test_the_differences_are_those_of_the_stored_runs(capsys):
    words = ("my.py:f", "results_dir=.", "budget=12", "seeds=2", "json=true")
    shown = printed(capsys, SCRIPT, *words).out.splitlines()
    result = json.loads(shown[-1])
    for differences in (result["against"], result["greedy"]):
        assert differences["pods"]["difference"] == pytest.approx(10)
        assert differences["pods"]["ci95"] == pytest.approx([10, 10])
        assert differences["grpo"]["difference"] == pytest.approx(20)
    table = pandas.read_csv("figures/board-sums.csv").set_index(["metric", "arm", "minus"])
    assert table["difference"]["accuracy", "pods", "pods"] == 0
    assert table.loc["greedy", "my.py:f", "pods"].tolist() == pytest.approx([60, 10, 10, 10, 0])
    assert len(shown) == 1 + len(table) + 1, "heads, rows, JSON"


@pytest.mark.usefixtures("three_arms")
def test_one_seed_has_no_interval(capsys):
    words = ("my.py:f", "results_dir=.", "budget=12", "seeds=1", "json=true")
    *_, last = printed(capsys, SCRIPT, *words).out.splitlines()
    assert json.loads(last)["against"]["pods"] == {"difference": pytest.approx(10), "ci95": None}


def test_holm_multiplies_the_smallest_p_by_the_number_of_comparisons():
    adjusted = statistics.holm({"a": 0.02, "b": 0.03, "c": 0.6})
    assert adjusted == pytest.approx({"a": 0.06, "b": 0.06, "c": 0.6})


def test_the_family_of_a_p_value_is_a_pair_of_arms_in_all_variants_and_prices():
    config = config_of(f"results_dir={ROOT / 'benchmarks/results/board'}", "output_dir=none")
    stored = board.stored(config)
    raw = {}
    for place in config.arms["pods"].cells:
        sides = []
        for arm in ("pods", "grpo"):
            cell = config.arms[arm].cells[place]
            rows = [
                (t.seed, np.mean(row["accuracy"]))
                for t, row in stored.items()
                if (t.arm, t.cell) == (arm, cell) and t.seed < 110
                if place == t.setting.place
            ]
            sides.append([accuracy for _, accuracy in sorted(rows)])
        raw[place] = ttest_rel(*sides).pvalue
    here = board.Setting(1200.0, "l40s", "sums")
    row = board.compare(config, stored, "accuracy", "pods", "grpo", here)
    assert len(raw) == 8
    assert row["p"] == pytest.approx(statistics.holm(raw)["sums"])


def test_a_function_that_fails_is_named_before_anything_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # mine.py's would count as a file
    Path("mine.py").write_text(OWN.replace("len(batch)", "len(batch.logprobs)"))
    line = refused(capsys, SCRIPT, "mine.py:mine", "output_dir=runs", "results_dir=.", "seeds=2")
    assert "algorithm=mine.py:mine: reads batch.logprobs; write mine.reads_logprobs = Tr" in line
    assert not Path("runs").exists()


def test_after_a_training_that_fails_no_further_one_starts(tmp_path, monkeypatch):
    started = []

    def train(config, training):
        started.append(training.seed)
        raise board.UserError("fails")

    monkeypatch.setattr(board, "train", train)
    monkeypatch.setattr(board, "try_out", lambda words: None)
    config = config_of("jobs=1", f"output_dir={tmp_path}", f"results_dir={tmp_path}")
    cell = board.Cell(1, 2, 2, 1e-3)
    setting = board.Setting(12.0, "l40s", "sums")
    wanted = [board.Training("pods", cell, seed, setting) for seed in range(50)]
    with pytest.raises(board.UserError, match="fails"):
        board.run(config, wanted)
    assert len(started) < 50


def test_a_training_without_evaluations_is_no_accuracy_of_0(tmp_path, monkeypatch):
    done = subprocess.CompletedProcess([], 0, stdout="", stderr="")
    monkeypatch.setattr(board.subprocess, "run", lambda *_, **__: done)
    config = config_of(f"output_dir={tmp_path}", f"results_dir={tmp_path}")
    setting = board.Setting(12.0, "l40s", "sums")
    training = board.Training("pods", board.Cell(16, 4, 2, 2e-3), 100, setting)
    with pytest.raises(board.UserError, match="has no evaluation"):
        board.train(config, training)
    # what another call has stored is not trained again; an old line has no world
    lines = results({"pods": (training.cell, 0.5)}, budget=12.0).replace('"world": "sums", ', "")
    (tmp_path / "report.jsonl").write_text(lines)
    assert board.train(config, training) is None
