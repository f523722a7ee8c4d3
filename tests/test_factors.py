"""The factor study: on made-up results with known effects, it shows these."""

import json
import re
from itertools import combinations

import numpy as np
import pandas
import pytest

from benchmarks import factors
from pods.config import command
from tests import processes
from tests.conftest import ROOT

CONFIG = command.typed(
    factors.FactorsConfig, command.compose("factors", [], command.CONFIG_DIR / "benchmarks")
)
CELLS = factors.design(CONFIG)


def write(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_design_is_balanced_and_no_main_effect_is_that_of_a_pair():
    signs = CELLS.to_numpy()
    assert signs.shape == (16, 6)
    assert not signs.sum(axis=0).any()
    np.testing.assert_array_equal(signs.T @ signs, 16 * np.eye(6))
    pairs = combinations(enumerate(CONFIG.factors), 2)
    confounded = {
        f"{name} x {other}": signs.T @ (signs[:, i] * signs[:, j])
        for (i, name), (j, other) in pairs
    }
    assert [pair for pair, sums in confounded.items() if sums.any()] == []


def test_known_effects_are_shown_with_intervals_that_hold_them():
    rng = np.random.default_rng(0)
    values = []
    for seed in range(5):
        values.append([])
        for _, signs in CELLS.iterrows():
            value = 0.7 + 0.02 * signs["prompts"] - 0.01 * signs["rollouts"]
            value += 0.015 * signs["prompts"] * signs["both_kinds"] + 0.05 * seed
            values[-1].append(value + rng.normal(0, 0.001))
    text = factors.table(np.array(values), CELLS)
    rows = re.findall(r"(?m)^\| (\w.*?) +\| ([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]", text)
    known = {"prompts": 4.0, "prompts x both_kinds": 3.0, "rollouts": -2.0}
    names = [{*name.split(" = ")} & {*known} for name, *_ in rows[:3]]
    assert names == [{"prompts"}, {"prompts x both_kinds"}, {"rollouts"}]
    centres, lows, highs = np.array([row[1:] for row in rows], dtype=float).T
    assert dict(zip(known, centres[:3], strict=True)) == pytest.approx(known, abs=0.15)
    intervals = zip(known, lows[:3], highs[:3], strict=True)
    assert [name for name, low, high in intervals if not low <= known[name] <= high] == [], text
    assert [row for row in rows[3:] if not abs(float(row[1])) < 0.2] == []


def test_the_predicted_effect_is_a_factor_of_the_signal_a_second():
    values = np.array([[0.1 * signs["rollouts"] for _, signs in CELLS.iterrows()]])
    doubled = np.array([np.log(2) * (signs["rollouts"] > 0) for _, signs in CELLS.iterrows()])
    rows = factors.table(values, CELLS, doubled).splitlines()[2:]
    assert re.fullmatch(r"\| rollouts .*\| \+20.0 \[one run\] *\| x 2.00 *\|", rows[0])
    assert [row for row in rows[1:] if "x 1.00" not in row] == []


def test_a_cell_has_the_sizes_and_parameters_of_its_forms():
    signs = pandas.Series(1, CONFIG.factors)
    assert factors.rates_of(CONFIG, signs)[0][:3] == (16, 16, 2)
    kwargs = factors.arm_of(CONFIG, signs).overrides[1]
    assert kwargs == "algorithm_kwargs={alive: true, look: 2, rows: kinds, advantages: all}"


def test_only_seeds_with_all_cells_count(tmp_path):
    line = {"budget": 1200.0, "clock": "l40s", "world": "sums", "cell": [8, 8, 4, 2e-3]}
    lines = [
        line | {"arm": arm, "seed": seed, "accuracy": [0.5 + seed / 1000], "greedy": [0.5]}
        for seed in (0, 100, 101, 102)
        for arm in CELLS.index[: 3 if seed == 102 else 16]
    ]
    write(tmp_path / "tune.jsonl", lines[:16])
    write(tmp_path / "report.jsonl", lines[16:])
    settings = [f"results_dir={tmp_path}", f"output_dir={tmp_path / 'runs'}"]
    settings.append(f"predicted={tmp_path / 'none.jsonl'}")
    shown = processes.run(tmp_path, *settings, script="benchmarks/factors.py").stdout
    assert "Accuracy at temperature 1, world sums, seeds: 2\n" in shown
    assert "+0.0 [" in shown


def test_a_cell_counts_at_the_rate_of_its_tuning(tmp_path):
    line = {"budget": 1200.0, "clock": "l40s", "world": "sums"}
    tuned = {2e-3: 0.5, 4e-3: 0.4}  # validation questions
    tested = {2e-3: 0.6, 4e-3: 0.9}
    for name, seed, by_rate in (("tune", 0, tuned), ("report", 100, tested)):
        lines = [
            line | {"arm": arm, "seed": seed, "cell": [8, 8, 4, rate], "accuracy": [value]}
            for arm in CELLS.index
            for rate, value in by_rate.items()
        ]
        write(tmp_path / f"{name}.jsonl", lines)
    config = CONFIG.model_copy(update={"results_dir": tmp_path})
    assert factors.complete(config, "accuracy", CELLS).tolist() == [[0.6] * 16]
    config.learning_rates = [4e-3]
    assert factors.complete(config, "accuracy", CELLS).tolist() == [[0.9] * 16]
    config.learning_rates = [1e-3]
    assert factors.complete(config, "accuracy", CELLS).shape == (0, 16), "never tuned"


@pytest.mark.parametrize(
    ("settings", "column"),
    [
        (["world=sums"], 1),
        (["world=sums", "learning_rates=[2e-3]"], 2),
        (["world=noisy"], 4),
        (["world=noisy", "learning_rates=[2e-3]"], 5),
        (["world=hard"], 7),
        (["world=hard", "learning_rates=[2e-3]"], 8),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_main_effects_in_the_docs_are_those_of_the_stored_runs(tmp_path, settings, column):
    shown = processes.run(tmp_path, *settings, script="benchmarks/factors.py", cwd=ROOT).stdout
    sampled, _ = shown.split("Greedy")
    effects = re.findall(r"(?m)^\| (\w+) +\| (\S+) \[(\S+), (\S+)\] +\| (x \S+)", sampled)
    assert len(effects) == 6
    page = (ROOT / "docs" / "planner.md").read_text()
    predicted_column = 3 * -(-column // 3)
    wrong = {}
    for name, effect, low, high, predicted in effects:
        row = re.search(rf"(?m)^\| .*\(`{name}`\).*$", page)[0]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        expected = [f"{effect} ({low.removeprefix('+')} to {high.removeprefix('+')})", predicted]
        if [cells[column], cells[predicted_column]] != expected:
            wrong[name] = expected
    assert wrong == {}
    spearman = re.search(r"(?m)^\| all +\| 16 +\| (\S+) \((\S+ to \S+)\)", sampled)
    assert f"{spearman[1]} ({spearman[2]})" in page
