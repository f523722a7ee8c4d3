"""Predictions of the signal against trainings: on made-up lines whose order is known."""

import json

import numpy as np
import pandas
import pytest
from scipy.stats import spearmanr

from benchmarks import predictions
from pods.config import command
from tests import processes
from tests.conftest import ROOT
from tests.figures import refused

SCRIPT = "benchmarks/predictions.py"


@pytest.fixture
def config(tmp_path):
    """That of the world hard, with results of its own."""
    words = ["world=hard", f"results_dir={tmp_path}", f"predicted={tmp_path / 'cells.jsonl'}"]
    composed = command.compose("predictions", words, command.CONFIG_DIR / "benchmarks")
    return command.typed(predictions.PredictionsConfig, composed)


def write_trained(config, trainings):
    """Accuracies that grow with m, and with the seed."""
    lines = []
    for training in trainings:
        accuracy = [0.1 + training.cell.m / 100 + training.seed / 10]
        line = training._asdict() | {"accuracy": accuracy, "greedy": accuracy}
        lines.append(json.dumps(line) + "\n")
    (config.results_dir / "tune.jsonl").write_text("".join(lines))


def test_every_registered_cell_is_trained_with_every_seed_at_one_rate(config):
    wanted = predictions.registered(config)
    assert len(predictions.cells_of(config)) == 13
    assert len(wanted) == 26
    assert {training.cell.rate for training in wanted} == {2e-3}
    assert {training.seed for training in wanted} == {0, 1}
    assert {training.world for training in wanted} == {"hard"}


def test_a_trained_cell_counts_with_the_mean_over_its_seeds(config):
    wanted = predictions.registered(config)
    write_trained(config, wanted[:3])  # the third: one seed of the second cell
    assert predictions.accuracies(config).to_dict() == pytest.approx(
        {
            ("grpo", 1, 16, 16): 0.1 + 0.16 + 0.05,
            ("grpo", 8, 8, 8): 0.1 + 0.08,
        }
    )


def test_cells_are_listed_with_the_highest_prediction_first():
    cells = [("pods", 8, 8, 4), ("grpo", 8, 8, 8)]
    index = pandas.MultiIndex.from_tuples(cells, names=predictions.SIZE)
    columns = ([0.0, np.log(2.0)], [0.5, 0.25], [0.4, 0.2])  # predicted, right, in the format
    table = predictions.by_cell(*(pandas.Series(values, index) for values in columns))
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    expected = [["grpo 8 8 8", "2.00", "25.0", "20.0"], ["pods 8 8 4", "1.00", "50.0", "40.0"]]
    assert rows == expected


def test_rank_correlations_are_those_of_scipy_with_ties_too():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, (2, 5, 12)).astype(float)
    expected = [spearmanr(*pair)[0] for pair in zip(x, y, strict=True)]
    np.testing.assert_allclose(predictions.spearman(x, y), expected)
    assert np.isnan(predictions.spearman(np.ones((1, 3)), np.arange(3.0)[None]))


def test_a_world_without_predictions_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    nothing = tmp_path / "none.jsonl"
    line = f"predicted={nothing}: no line of world=hard"
    assert line in refused(capsys, SCRIPT, "world=hard", f"predicted={nothing}")


def test_other_prices_are_no_trainings_of_these(config):
    first, second, *_ = predictions.registered(config)
    write_trained(config, [first._replace(clock="h100s"), second._replace(budget=27.0)])
    assert predictions.accuracies(config).empty


def test_the_tables_in_the_docs_are_those_of_the_stored_trainings(tmp_path):
    shown = processes.run(tmp_path, script=SCRIPT, cwd=ROOT).stdout
    page = " ".join((ROOT / "docs" / "planner.md").read_text().split())  # however wide a column is
    lines = [" ".join(line.split()) for line in shown.splitlines() if line.startswith("| ")]
    rows = [line for line in lines if "| --- |" not in line and "| cells |" not in line]
    assert len(rows) > 20
    assert [row for row in rows if row not in page] == []
