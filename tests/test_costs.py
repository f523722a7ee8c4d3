"""pods/runs/costs.py: the seconds of a step, from the steps of a run."""

import json

import numpy as np
import pytest

from pods.config.errors import UserError
from pods.runs import costs
from tests.figures import ledger_file


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
        seconds = {"generate": generation, "score": 0.02, "select": 0.012, "update": 0.2}
        metrics.append({f"seconds/{phase}": value for phase, value in seconds.items()})
    prices = costs.fit(metrics, steps)
    flat = np.array([[part["lengths"] for part in step] for step in steps])
    assert prices.fixed == pytest.approx(0.01 + 0.002 * flat.max(axis=(1, 2)).mean())
    assert prices.generate == pytest.approx(1e-3 + 1e-4 * flat.mean())
    assert prices.update == pytest.approx(0.05)


def test_every_round_has_the_fixed_seconds():
    """Steps of one to four rounds of .5 s, and .002 s a token."""
    rng = np.random.default_rng(1)
    metrics = []
    steps = []
    for rounds in rng.integers(1, 5, size=100):
        lengths = rng.integers(5, 51, size=8)
        steps.append([{"lengths": lengths, "kept": [0, 1]}])
        seconds = {"generate": 0.5 * rounds + 0.002 * lengths.sum(), "score": 0, "select": 0}
        phases = {f"seconds/{name}": value for name, value in (seconds | {"update": 0.2}).items()}
        metrics.append(phases | {"generate/rounds": rounds})
    prices = costs.fit(metrics, steps)
    assert (prices.fixed, prices.round) == pytest.approx((0.5, 0.5))


def test_a_step_of_equal_lengths_has_fixed_seconds_alone():
    phases = ("generate", "score", "select", "update")
    metrics = [{f"seconds/{phase}": 0.5 if phase == "generate" else 0.0 for phase in phases}] * 12
    prices = costs.fit(metrics, [[{"lengths": [3, 3], "kept": [0]}]] * 12)
    assert prices.fixed == pytest.approx(0.5)
    assert (prices.generate, prices.update) == (0, 0)


@pytest.fixture
def run(tmp_path):
    """14 steps of .5 s and .2 s, two prompts, 2 of 4 rollouts kept."""
    folder = tmp_path / "checkpoints" / "r"
    folder.mkdir(parents=True)
    write_metrics(folder, 14)
    groups = [{"step": 1 + i // 2, "lengths": [1, 2, 3, 4], "kept": [0, 1]} for i in range(28)]
    ledger_file(folder, groups)
    return folder


def write_metrics(run, steps):
    phases = {"generate": 0.5, "score": 0, "select": 0, "update": 0.2}
    seconds = {f"seconds/{phase}": value for phase, value in phases.items()}
    lines = [json.dumps({"step": step, **seconds}) for step in range(1, steps + 1)]
    (run / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))


def test_the_prices_of_a_run_are_of_its_metrics_and_its_ledger(run):
    prices = costs.of_run(run)
    assert (prices.fixed, prices.round, prices.generate) == pytest.approx((0.5, 0.5, 0))
    assert prices.update == pytest.approx(0.05)


def test_a_run_of_few_steps_is_refused(run):
    write_metrics(run, 9)
    with pytest.raises(UserError, match="run=r: has 9 steps, and costs need 10 or more"):
        costs.of_run(run)


def test_a_run_without_a_ledger_is_refused(tmp_path):
    with pytest.raises(UserError, match="run=x: no ledger"):
        costs.of_run(tmp_path / "x")
