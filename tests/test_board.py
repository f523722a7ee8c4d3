"""The board: an algorithm against itself differs by exactly 0, and nothing is trained twice."""

import functools
import json
import re
import signal
import subprocess
import time
from itertools import product
from subprocess import CalledProcessError

import numpy as np
import psutil
import pytest
from scipy.stats import ttest_rel

from benchmarks import board, trainings, workers
from pods import files
from pods.config import command
from pods.config.errors import RunFailed
from pods.figures import ranking
from tests import processes

OWN = """
def mine(step):
    batch = yield step.prompts, step.m
    return list(range(len(batch)))
"""
BENCHMARKS = command.CONFIG_DIR / "benchmarks"
TUNED = {"seed": 0, "budget": 1200.0, "clock": "l40s", "greedy": [0.5], "commit": "0"}


def keys(folder, *overrides):
    folders = [f"output_dir={folder / 'runs'}", f"results_dir={folder}", f"out_dir={folder}"]
    few = 'settings=["logger=[]","threads=1","evaluation.questions=16"]'
    return [*overrides, "budget=12", "seeds=2", few, *folders]


def play(folder, *overrides, code=0):
    script = "benchmarks/board.py"
    return processes.run(folder, *keys(folder, *overrides), script=script, code=code)


def tuned(folder, **cells):
    """The better cell of each arm is the last one."""
    lines = [
        json.dumps(TUNED | {"arm": arm, "cell": cell, "accuracy": [0.1 * place]})
        for arm, own in cells.items()
        for place, cell in enumerate(own)
    ]
    (folder / "tune.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_an_algorithm_against_itself_differs_by_exactly_nothing(tmp_path):
    tuned(tmp_path, grpo=[[1, 2, 2, 1e-3], [2, 2, 2, 1e-3]], pods=[[2, 4, 2, 1e-3]])
    (tmp_path / "mine.py").write_text(OWN)
    world = tmp_path / "conf" / "experiment" / "own.yaml"
    world.parent.mkdir(parents=True)
    world.write_text("# @package _global_\ndefaults: [noisy, _self_]\nexperiment: own\n")
    words = ("--config-dir", "conf", f"{tmp_path / 'mine.py'}:mine")
    words += ("cell=[2,2,2,1e-3]", "world=own", "json=true")
    done = play(tmp_path, *words)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["world"], result["seeds"]) == ("own", [100, 101])
    metrics = {"temperature 1": result["against"], "greedy": result["greedy"]}
    nothing = {"difference": 0.0, "ci95": [0.0, 0.0]}
    itself = {name: metric["grpo"] for name, metric in metrics.items()}
    assert itself == {"temperature 1": nothing, "greedy": nothing}
    pods = [(n, *m["pods"]["ci95"], m["pods"]["difference"]) for n, m in metrics.items()]
    assert [case for case, low, high, gain in pods if not low <= gain <= high] == [], pods
    assert re.findall(r"(\d) of 6: ", done.stderr) == [*"123456"]  # also where it is piped
    assert not (tmp_path / "report.jsonl").exists(), "the published results stay as they are"
    assert [*(tmp_path / "runs").glob("*/")] == [], "a changed algorithm finds no finished run"
    stored = files.read_lines(tmp_path / "runs" / "report.jsonl")
    trained = sorted((line["arm"].rpartition(":")[2], line["seed"]) for line in stored)
    assert trained == [*product(("grpo", "mine", "pods"), (100, 101))]
    assert {line["world"] for line in stored} == {"own"}
    dates = {line["date"] for line in stored}
    assert {date for date in dates if not re.fullmatch(r"\d{4}-\d\d-\d\d", date)} == set()
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


@pytest.mark.parametrize(
    ("world", "clock", "place"),
    [
        ("noisy", "l40s", ("noisy", "l40s")),
        ("noisy", "h100s", ("noisy", "l40s")),
        ("large", "h100s", ("sums", "h100s")),
        ("large", "measured", ("sums", "both")),
    ],
)
def test_a_cell_is_that_of_the_world_else_of_sums_and_of_the_prices_else_of_any(
    world, clock, place, monkeypatch
):
    """Of three seeds, among all prices of sums those of l40s have the best cell."""
    config = command.typed(
        trainings.BoardConfig, command.compose("board", [f"clock={clock}"], BENCHMARKS)
    )
    cells = {
        ("sums", "l40s"): ranking.Cell(1, 2, 2, 1e-3),
        ("sums", "h100s"): ranking.Cell(2, 2, 2, 1e-3),
        ("noisy", "l40s"): ranking.Cell(3, 2, 2, 1e-3),
    }
    results = {}
    for (name, prices), cell in cells.items():
        for seed in range(3):
            training = trainings.Training("dapo", cell, seed, config.budget, prices, name)
            results[training] = {"accuracy": [0.5 + 0.1 * (prices == "l40s")]}
    monkeypatch.setattr(board, "stored", lambda *_: results)
    expected = cells.get(place, cells["sums", "l40s"])
    assert board.cell_of(config, "dapo", world) == expected


@pytest.mark.parametrize(("world", "P"), [("sums", 3), ("noisy", 2)])
def test_a_control_has_the_cell_of_its_arm_where_it_was_not_tuned(world, P, monkeypatch):
    config = command.typed(trainings.BoardConfig, command.compose("board", [], BENCHMARKS))
    cells = [("thin_history", "sums", 1), ("thin_history", "noisy", 2), ("thin", "sums", 3)]
    results = {}
    for arm, place, prompts in cells:
        cell = ranking.Cell(prompts, 2, 2, 1e-3)
        training = trainings.Training(arm, cell, 0, config.budget, config.clock, place)
        results[training] = {"accuracy": [0.5]}
    monkeypatch.setattr(board, "stored", lambda *_: results)
    assert board.cell_of(config, "thin", world).P == P


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


def test_a_function_that_fails_is_named_before_anything_trains(tmp_path):
    tuned(tmp_path, grpo=[[2, 2, 2, 1e-3]], pods=[[2, 4, 2, 1e-3]])
    (tmp_path / "mine.py").write_text(OWN.replace("len(batch)", "len(batch.logprobs)"))
    folders = [f"output_dir={tmp_path / 'runs'}", f"results_dir={tmp_path}"]
    done = processes.run(
        tmp_path, "mine.py:mine", *folders, "seeds=2", script="benchmarks/board.py", code=2
    )
    line = done.stderr.splitlines()[-1]
    assert "algorithm=mine.py:mine: reads batch.logprobs; write mine.reads_logprobs = Tr" in line
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def rivals(tmp_path):
    """A folder with the cells of grpo and pods and their results for both seeds; only mine.py:mine
    is to be trained."""
    cells = {"grpo": [2, 2, 2, 1e-3], "pods": [2, 4, 2, 1e-3]}
    lines = []
    for arm, cell in cells.items():
        for seed in (100, 101):
            line = TUNED | {"arm": arm, "seed": seed, "cell": cell, "budget": 12.0}
            line |= dict.fromkeys(("accuracy", "greedy"), [0.5] * 12)
            lines.append(json.dumps(line) + "\n")
    (tmp_path / "report.jsonl").write_text("".join(lines))
    (tmp_path / "tune.jsonl").write_text("".join(lines))
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path


@pytest.mark.slow
def test_a_killed_board_ends_all_it_started_and_two_at_once_train_nothing_twice(rivals):
    """Killed while it trains; then two at once, after a line of its results was torn."""
    own = (f"{rivals / 'mine.py'}:mine", "cell=[2,2,2,1e-3]", "json=true")
    words = [*keys(rivals, *own), "seeds=1"]
    start = functools.partial(processes.Process, script="benchmarks/board.py")
    runs = rivals / "runs"
    first = start(rivals / "first", *words, "budget=1200")  # minutes of training
    processes.wait_for(lambda: list(runs.glob("*/metrics.jsonl")), [first])
    started = psutil.Process(first.pid).children(recursive=True)
    assert len(started) > 2
    first.kill()
    assert first.end() == -signal.SIGKILL
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []
    (runs / "report.jsonl").write_text('{"arm": "grpo", "ce')
    both = [start(rivals / name, *words) for name in ("second", "third")]
    assert [process.end() for process in both] == [0, 0]
    assert both[0].stdout == both[1].stdout
    said = f"output_dir={runs}: waiting for the board that trains there"
    assert sorted(said in process.stderr for process in both) == [False, True]
    stored = [json.loads(line) for line in (runs / "report.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in stored] == [100]
    assert (runs / "set-aside" / "report.jsonl.0").read_text() == '{"arm": "grpo", "ce'


@pytest.mark.parametrize(
    ("first", "error", "line"),
    [
        ("false", CalledProcessError, "exit status 1"),
        ("kill -9 $PPID", RunFailed, "jobs=1: a training was killed, .* set fewer jobs"),
    ],
    ids=["fails", "is killed"],
)
def test_after_one_that_fails_no_other_one_is_done(tmp_path, monkeypatch, first, error, line):
    monkeypatch.setattr(workers, "PRELOADED", [])
    others = [f"sleep 1; kill -0 $PPID && touch {tmp_path / name}" for name in "abc"]
    shell = functools.partial(subprocess.run, shell=True, check=True)
    with pytest.raises(error, match=line):
        list(workers.results(shell, [first, *others], jobs=1))
    time.sleep(1)
    assert list(tmp_path.iterdir()) == []


def test_a_rate_is_halved_and_doubled_until_it_gets_worse(monkeypatch):
    """The best two cells of an arm, and no others, are trained with further seeds."""
    best = board.Cell(16, 4, 2, 4e-3)
    trained = []

    def run(_, wanted):
        trained.extend(wanted)
        results = {}
        for training in wanted:
            distance = abs(np.log2(training.cell.rate / best.rate)) + (
                training.cell[:3] != best[:3]
            )
            results[training] = {"accuracy": [0.5 - 0.1 * distance]}
        return results

    monkeypatch.setattr(board, "run", run)
    composed = command.compose("board", [], BENCHMARKS)
    board.tune(command.typed(trainings.BoardConfig, composed), ["pods"], "noisy", seeds=2)
    sizes = [(8, 8, 4), (16, 8, 2), (16, 4, 2)]
    first = [(training.cell[:3], training.cell.rate) for training in trained if training.seed == 0]
    rates = [2e-3, 1e-3, 4e-3, 8e-3]
    assert first == [(size, 2e-3) for size in sizes] + [(best[:3], rate) for rate in rates[1:]]
    others = [training for training in trained if training.seed != 0]
    assert {training.cell for training in others} == {best, best._replace(rate=2e-3)}
    assert {training.seed for training in others} == {1}
    assert {training.world for training in trained} == {"noisy"}
