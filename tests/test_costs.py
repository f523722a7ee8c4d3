"""pods/runs/costs.py and scripts/plan.py: the seconds of a step, from a run and from prices."""

import json

import numpy as np
import pytest

from pods.runs import costs
from tests.figures import ledger_file, printed, refused

PLAN = "scripts/plan.py"
CLOCKS = {"measured": "{name: measured}", "priced": "{name: own, fixed: 2, generate: 1, update: 3}"}


def test_mean_costs_are_recovered():
    """.01 s + .002 s a token of the longest + 1e-4 s a token; 1 ms to score, .05 s to train one."""
    rng = np.random.default_rng(1)
    metrics = []
    steps = []
    for _ in range(150):
        scale = rng.uniform(0.3, 1)
        lengths = [(rng.integers(5, 51, size=16) * scale).astype(int) for _ in range(2)]
        steps.append([{"lengths": part, "kept": [0, 1]} for part in lengths])
        generation = 0.01 + 0.002 * np.max(lengths) + 1e-4 * np.sum(lengths)
        metrics.append({
            "seconds/generate": generation,
            "seconds/score": 0.02,
            "seconds/select": 0.012,
            "seconds/update": 0.2,
        })  # fmt: skip
    prices = costs.fit(metrics, steps)
    flat = np.array([[part["lengths"] for part in step] for step in steps])
    assert prices.fixed == pytest.approx(0.01 + 0.002 * flat.max(axis=(1, 2)).mean())
    assert prices.generate == pytest.approx(1e-3 + 1e-4 * flat.mean())
    assert prices.update == pytest.approx(0.05)


def test_a_step_of_equal_lengths_has_fixed_seconds_alone():
    phases = ("generate", "score", "select", "update")
    metrics = [{f"seconds/{phase}": 0.5 if phase == "generate" else 0.0 for phase in phases}] * 12
    prices = costs.fit(metrics, [[{"lengths": [3, 3], "kept": [0]}]] * 12)
    assert prices.fixed == pytest.approx(0.5)
    assert (prices.generate, prices.update) == (0, 0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """14 steps of .5 s and .2 s, two prompts, 2 of 4 rollouts kept."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "checkpoints" / "r"
    (folder / ".hydra").mkdir(parents=True)
    write_config(folder, "measured")
    write_metrics(folder, 14)
    ledger_file(folder, [{"step": 1 + i // 2, "lengths": [1, 2, 3, 4], "kept": [0, 1]}
                         for i in range(28)])  # fmt: skip
    return folder


def write_config(run, clock):
    sizes = "prompts_per_step: 2\nrollouts_per_prompt: 4\nkept_per_prompt: 2\n"
    (run / ".hydra" / "config.yaml").write_text(f"{sizes}clock: {CLOCKS[clock]}\n")


def write_metrics(run, steps):
    phases = {"generate": 0.5, "score": 0, "select": 0, "update": 0.2}
    seconds = {f"seconds/{phase}": value for phase, value in phases.items()}
    lines = [json.dumps({"step": step, **seconds}) for step in range(1, steps + 1)]
    (run / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))


def test_cells_of_a_run_have_its_prompts_and_go_up_to_four_times_its_rollouts(run, capsys):
    plan = json.loads(printed(capsys, PLAN, "run=r", "json=true")[0])
    assert {cell["prompts"] for cell in plan["cells"]} == {2}
    assert max(cell["n"] for cell in plan["cells"]) == 16
    by_size = {(cell["n"], cell["m"]): cell["seconds_per_step"] for cell in plan["cells"]}
    assert by_size[4, 2] == pytest.approx(0.7)
    assert by_size[16, 4] == pytest.approx(0.5 + 0.4)
    text, _ = printed(capsys, PLAN, "run=r", "cells=[[4,4,2]]")
    assert text.startswith("seconds a step: 0.5 + 0 n P + 0.05 m P\n")
    assert "too much alike to tell a rollout's seconds" in text
    assert text.splitlines()[-1].split() == ["4", "4", "2", "0.9"]


def test_a_run_with_prices_is_planned_with_them(run, capsys):
    write_config(run, "priced")
    plan = json.loads(printed(capsys, PLAN, "run=r", "cells=[[1,8,2]]", "json=true")[0])
    assert plan["cells"] == [{"prompts": 1, "n": 8, "m": 2, "seconds_per_step": 2 + 8 + 6}]


def test_a_run_of_few_steps_is_refused(run, capsys):
    write_metrics(run, 9)
    assert refused(capsys, PLAN, "run=r").startswith(
        "plan.py: run=r: has 9 steps, and costs need 10"
    )


def test_the_published_l40s_answers_without_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plan = json.loads(printed(capsys, PLAN, "clock=l40s", "cells=[[2,64,16]]", "json=true")[0])
    seconds = 4.8 + 0.06 * 128 + 0.105 * 32
    assert plan["cells"][0]["seconds_per_step"] == pytest.approx(seconds)
    assert plan["prices"]["name"] == "l40s"


@pytest.mark.parametrize(("words", "line"), [
    pytest.param(["clock=l40s"], "clock=l40s: no run says the sizes", id="no sizes"),
    pytest.param(["run=r", "clock=l40s"], "run=r clock=l40s: set run=<run>, or", id="both"),
    pytest.param(["run=r"], "run=r: no ledger checkpoints/r/rollouts.jsonl.gz", id="no run"),
    pytest.param(["clock=h", "cells=[[1,2,2]]"], "clock=h: no such file", id="no such price list"),
])  # fmt: skip
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, words, line):
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, PLAN, *words).startswith(f"plan.py: {line}")
