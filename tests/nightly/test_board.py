"""The board with real trainings: nothing is trained twice, also after a kill."""

import json
import re
import signal
from itertools import product

import psutil
import pytest

from pods import files
from tests import processes
from tests.commands.test_board import OWN, SCRIPT, results

CELLS = ("arms.grpo.cells={sums: [2,2,2,1e-3]}", "arms.pods.cells={sums: [2,4,2,1e-3]}")


def keys(folder, *overrides):
    folders = [f"output_dir={folder / 'runs'}", f"results_dir={folder}", f"out_dir={folder}"]
    few = 'settings=["logger=[]","threads=1","evaluation.questions=16"]'
    return [*overrides, *CELLS, "budget=12", "seeds=2", few, *folders]


def test_an_algorithm_against_itself_differs_by_exactly_nothing(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    published = tmp_path / "report.jsonl"  # pods needs no training
    published.write_text(results({"pods": ([2, 4, 2, 1e-3], 0.5)}, world="own"))
    before = published.read_bytes()
    world = tmp_path / "conf" / "experiment" / "own.yaml"
    world.parent.mkdir(parents=True)
    world.write_text("# @package _global_\ndefaults: [noisy, _self_]\nexperiment: own\n")
    words = keys(tmp_path, f"{tmp_path / 'mine.py'}:mine", "cell=[2,2,2,1e-3]", "world=own")
    words = ["--config-dir", "conf", *words, "json=true"]
    done = processes.run(tmp_path, *words, script=SCRIPT)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["world"], result["seeds"]) == ("own", [100, 101])
    nothing = {"difference": 0.0, "ci95": [0.0, 0.0]}
    assert (result["against"]["grpo"], result["greedy"]["grpo"]) == (nothing, nothing)
    pods = result["against"]["pods"]
    assert pods["ci95"][0] <= pods["difference"] <= pods["ci95"][1]
    assert re.findall(r"(\d) of 4: ", done.stderr) == [*"1234"]  # also where it is piped
    assert published.read_bytes() == before
    assert [*(tmp_path / "runs").glob("*/")] == [], "a changed algorithm finds no finished run"
    lines = files.read_lines(tmp_path / "runs" / "report.jsonl")
    trained = sorted((line["arm"].rpartition(":")[2], line["seed"]) for line in lines)
    assert trained == [*product(("grpo", "mine"), (100, 101))]
    assert {line["world"] for line in lines} == {"own"}
    (tmp_path / "mine.py").write_text("raise SystemExit('is not trained again')\n")
    assert processes.run(tmp_path, *words, script=SCRIPT).stdout == done.stdout


@pytest.fixture
def rivals(tmp_path):
    """A folder with mine.py and the results of grpo and pods, so that only mine.py:mine trains."""
    lines = results({"grpo": ([2, 2, 2, 1e-3], 0.5), "pods": ([2, 4, 2, 1e-3], 0.5)})
    (tmp_path / "report.jsonl").write_text(lines)
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path


def test_what_a_killed_board_trained_is_not_trained_again(rivals):
    own = keys(rivals, f"{rivals / 'mine.py'}:mine", "cell=[2,2,2,1e-3]")
    words = [*own, "seeds=1"]
    runs = rivals / "runs"
    first = processes.Process(rivals / "first", *words, script=SCRIPT)
    processes.wait_for(lambda: list(runs.glob("*/metrics.jsonl")), [first])
    trainings = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    assert first.end() == -signal.SIGKILL
    psutil.wait_procs(trainings)  # they go on without it
    (runs / "report.jsonl").write_text('{"arm": "grpo", "ce')  # a torn line
    second = processes.Process(rivals / "second", *words, script=SCRIPT)
    assert second.end() == 0
    assert [line["seed"] for line in files.read_lines(runs / "report.jsonl")] == [100]
