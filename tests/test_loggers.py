"""The loggers trackio and tensorboard: metrics, tables of rollouts, a resume."""

import html
import io
import json
import sqlite3
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pods.config import check
from pods.config.errors import UserError
from pods.training import logs
from tests.configs import compose
from tests.steps import step_of

STEP = step_of({"7": [0.0, 1.0, 0.5]}, [0, 1])


def log(folder: Path, steps: range, *overrides: str) -> None:
    """What a training of these steps logs."""
    folder.mkdir(exist_ok=True)
    config = compose("run=a-seed3", f"output_dir={folder.parent}", *overrides)
    with ExitStack() as stack:
        loggers = logs.open_loggers(config, folder, stack, lambda: STEP)
        for step in steps:
            for logger in loggers:
                logger(step, {"train_seconds": float(step)})


def test_nothing_of_a_step_is_cut_on_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(logs, "Console", lambda stderr: terminal())
    metrics = {"all/reward_mean": 0.5, "kept/reward_variance": 0.25, "train_seconds": 12.0}
    metrics |= {f"seconds/{name}": 12.34 for name in ("generate", "score", "select", "update")}
    line = "step 1234 reward 0.500 kept variance 0.250 generate 12.34s score 12.34s select 12.34s"
    for kind in ("xterm", "dumb"):  # the second has lines in place of a bar
        monkeypatch.setenv("TERM", kind)
        with ExitStack() as stack:
            logs.console(compose("budget.train_seconds=21600"), stack)(1234, metrics)
        text = " ".join(screen.getvalue().split())
        assert f"{line} update 12.34s" in text
        assert "21588 s of training time left" in text
        screen.truncate(0)


def test_tensorboard_shows_tables_at_both_ends(tmp_path: Path) -> None:
    log(tmp_path, range(1, 6), "logger=[tensorboard]", "logger.tensorboard.samples_every=3")
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in found.Scalars("train_seconds")][::4] == [(1, 1.0), (5, 5.0)]
    tables = found.Tensors("samples/text_summary")
    assert [table.step for table in tables] == [1, 3, 5]
    lines = tables[0].tensor_proto.string_val[0].decode().splitlines()
    assert lines[0].startswith("| kept | reward | correctness |")
    assert len(lines) == 2 + 3  # header, rule, rollouts
    assert lines[2].startswith("| True | 1.0 |")


def test_texts_in_cells_are_no_markup() -> None:
    hostile = "<think>\r\n| *a* |</think>\u2028<script>"
    row = logs.shown({"completion": hostile, "reward": 0.5})
    assert row["reward"] == 0.5
    assert not {*"<>|*\r\n\u2028"} & {*row["completion"].replace("<br>", "")}
    shown = html.unescape(row["completion"].replace("<br>", "\n"))
    assert shown.splitlines() == hostile.splitlines()


def test_trackio_holds_config_metrics_and_tables_and_goes_on_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("trackio")
    for name in [name for name in sys.modules if name.startswith("trackio")]:
        if hasattr(sys.modules[name], "TRACKIO_DIR"):  # read at the first import, maybe of TRL
            monkeypatch.setattr(sys.modules[name], "TRACKIO_DIR", tmp_path / "trackio")
    keys = ["logger=[trackio]", "logger.trackio.samples_every=3", "seed=3"]
    for steps in (range(1, 6), range(6, 8)):  # the second process resumes the run
        log(tmp_path / "run", steps, *keys)
    assert capsys.readouterr().out == ""  # stdout is for results
    with sqlite3.connect(tmp_path / "trackio" / "pods.db") as database:
        rows = database.execute("select run_id, run_name, step, metrics from metrics").fetchall()
        ((config,),) = database.execute("select config from configs").fetchall()
    assert {row[1] for row in rows} == {"a-seed3"}
    assert len({row[0] for row in rows}) == 1
    logged = [(step, json.loads(values)) for *_, step, values in rows]
    times = {step: m["train_seconds"] for step, m in logged if "train_seconds" in m}
    assert times == {step: float(step) for step in range(1, 8)}
    tables = {step: m["samples"]["_value"] for step, m in logged if "samples" in m}
    assert [*tables] == [1, 3, 5, 6, 7]
    assert [row["kept"] for row in tables[1]] == [True, False, True]
    assert json.loads(config)["rollouts_per_prompt"] == 32


def test_a_logger_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"^logger=wandb: wandb is not installed; uv sync --extra w"
    ):
        compose("logger=[wandb]")
