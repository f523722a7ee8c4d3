"""The wandb logger, offline: the whole config, groups that gather seeds, samples as a table."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import wandb

from pods.training import logs
from tests.configs import compose
from tests.steps import step_of

STEP = step_of({"7": [0.0, 1.0, 0.5]}, [0, 1])


def test_samples_are_best_first_and_say_what_was_kept():
    rows = logs.samples(STEP)
    assert [(row["completion"], row["kept"], row["reward"]) for row in rows] == [
        ("b", True, 1.0), ("c", False, 0.5), ("a", True, 0.0)
    ]  # fmt: skip
    assert [row["correctness"] for row in rows] == [1.0, 0.5, 0.0]


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No account of this machine, and no session of an earlier test."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    wandb.teardown()


def test_a_group_holds_the_seeds_of_one_setting():
    names = [
        f"a-pods-seed{seed}-optimizer.learning_rate-{rate}" for seed in (1, 12) for rate in (3, 4)
    ]
    groups = [logs._group(compose(f"run={name}")) for name in names]
    assert groups == ["a-pods-optimizer.learning_rate-3", "a-pods-optimizer.learning_rate-4"] * 2


def test_an_offline_run_holds_config_and_tables_of_both_ends(tmp_path: Path):
    config = compose(
        "logger=[wandb]", "logger.wandb.mode=offline", "logger.wandb.samples_every=3", "seed=3",
        "logger.wandb.entity=team", "logger.wandb.tags=[a,b]", f"output_dir={tmp_path}",
    )  # fmt: skip
    seen = []
    for steps in (range(1, 6), range(6, 7)):  # the second process resumes the run
        with ExitStack() as stack:
            loggers = logs.open_loggers(config, tmp_path, stack, lambda: STEP)
            run = wandb.run
            seen.append(run.id)
            assert (run.name, run.entity, run.tags) == (config.run, "team", ("a", "b"))
            assert run.group == config.run.removesuffix("-seed3")
            assert run.config["optimizer"]["learning_rate"] == config.optimizer.learning_rate
            for step in steps:
                for logger in loggers:
                    logger(step, {"train_seconds": float(step)})
    assert seen[0] == seen[1] != config.run  # two folders may hold runs of one name
    tables = sorted(tmp_path.glob("wandb/offline-run-*/files/media/table/*.json"))
    steps = [int(path.name.split("_")[1]) for path in tables]  # the newest that wandb had
    assert sorted(steps) == [0, 0, 2, 5]  # at 1 and 6, the first of each process, 3, and the end
    table = json.loads(tables[0].read_text())
    assert table["columns"][:2] == ["kept", "reward"]
    assert [row[0] for row in table["data"]] == [True, False, True]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "no API key"),
        ({"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}, "127.0.0.1:9"),
    ],
)
def test_without_key_or_server_a_line_says_so_and_the_run_goes_on(
    environment, said, tmp_path, monkeypatch, capfd
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(logs, "WANDB_SECONDS", 2.0)
    config = compose("logger=[wandb]", "logger.wandb.mode=online", f"output_dir={tmp_path}")
    with ExitStack() as stack:
        for logger in logs.open_loggers(config, tmp_path, stack, lambda: STEP):
            logger(1, {"train_seconds": 1.0})
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "logger=wandb" in line]
    assert said in line
    assert f"wandb sync {tmp_path}/wandb/offline-run-*" in line
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 1
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 1
