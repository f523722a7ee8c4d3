"""The wandb logger, offline: the whole config, groups that gather seeds, samples as a table."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from pods import logs
from tests.configs import compose
from tests.steps import step_of

STEP = step_of({"7": [0.0, 1.0, 0.5]}, [0, 1])


def test_samples_are_best_first_and_say_what_was_kept():
    rows = logs.samples(STEP)
    assert [(row["completion"], row["kept"], row["reward"]) for row in rows] == [
        ("b", True, 1.0), ("c", False, 0.5), ("a", True, 0.0)
    ]  # fmt: skip
    assert [row["correctness"] for row in rows] == [1.0, 0.5, 0.0]


def test_an_offline_run_holds_config_and_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    config = compose(
        "logger=[wandb]", "logger.wandb.mode=offline", "logger.wandb.samples_every=2", "seed=3",
        f"output_dir={tmp_path}",
    )  # fmt: skip
    with ExitStack() as stack:
        loggers = logs.open_loggers(config, tmp_path, stack, lambda: STEP)
        import wandb

        run = wandb.run
        assert (run.name, run.id) == (config.run, config.run)
        assert run.group == config.run.removesuffix("-seed3")
        assert run.config["optimizer"]["learning_rate"] == config.optimizer.learning_rate
        for step in (1, 2, 3):
            for logger in loggers:
                logger(step, {"train_seconds": float(step)})
    tables = list(tmp_path.glob("wandb/offline-run-*/files/media/table/*.json"))
    assert len(tables) == 1
    table = json.loads(tables[0].read_text())
    assert table["columns"][:2] == ["kept", "reward"]
    assert [row[0] for row in table["data"]] == [True, False, True]
