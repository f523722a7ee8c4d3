"""The metric lines: what they count, on the console, and in each tracker after a resume."""

from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest
import wandb
from accelerate import PartialState
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pods import files
from pods.clock import Clock
from pods.config.errors import UserError
from pods.training import check, logs
from tests.configs import compose
from tests.steps import step_of


@pytest.fixture(autouse=True)
def no_account(tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield
    wandb.teardown()


def log(folder: Path, steps: range, *overrides: str) -> ExitStack:
    """Log what a training of these steps logs; on exit the loggers are closed."""
    PartialState()
    stack = ExitStack()
    for logger in stack.enter_context(logs.open_loggers(compose(*overrides), folder)):
        for step in steps:
            logger(step, {"train_seconds": float(step)}, STEP)
    return stack


STEP = step_of({"q": [0.0, 1.0, 0.5], "other": [1.0] * 3}, [0, 1, 4])


def test_the_console_has_a_line_every_ten_seconds_and_one_for_each_evaluation(capsys):
    metrics = {"all/reward_mean": 0.5, "kept/reward_variance": 0.25}
    metrics |= {f"seconds/{name}": 12.34 for name in ("generate", "score", "select", "update")}
    write = logs.Console(compose("budget.train_seconds=40", "evaluation.split=validation"))
    clocks = ("train_seconds", "wall_seconds")
    for step, seconds in enumerate((5.0, 12.0, 15.5, 16.0, 40.0), start=1):
        evaluated = {"eval/accuracy": 0.75, "eval/greedy_accuracy": 0.5} if step == 4 else {}
        write(step, metrics | dict.fromkeys(clocks, seconds) | evaluated, STEP)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == (
        "step 1  reward 0.500  kept reward variance 0.250  generate 12.34s score 12.34s "
        "select 12.34s update 12.34s  12% done, about 35 s left"
    )
    assert [line.split("  ")[0] for line in others] == ["step 3", "step 4", "step 5"]
    assert others[1] == "step 4  accuracy 0.750, greedy 0.500  (validation split, 16 s of training)"


def test_the_console_names_the_price_list_of_its_seconds(capsys):
    write = logs.Console(compose("clock=l40s", "budget.train_seconds=40"))
    write(1, {"train_seconds": 10.0, "wall_seconds": 600.0}, STEP)
    assert capsys.readouterr().err.endswith("25% done, about 30 s left (priced: l40s)\n")


def test_metrics_and_events_have_every_step(tmp_path):
    log(tmp_path, range(1, 6), "logger=[tensorboard]").close()
    assert files.read_lines(tmp_path / "metrics.jsonl")[4] == {"step": 5, "train_seconds": 5.0}
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    values = [(event.step, event.value) for event in events.Scalars("train_seconds")]
    assert values == [(step, float(step)) for step in range(1, 6)]


def test_wandb_offline_holds_the_config_and_a_resume_has_the_same_run(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("WANDB_MODE", "offline")
    runs = []
    for _ in range(2):
        with log(tmp_path, range(1, 2), "run=a-pods-seed3-P-2", "logger=[wandb]"):
            runs.append(wandb.run)
    assert capfd.readouterr() == ("", ""), "wandb is quiet"
    first, resumed = runs
    assert first.id == resumed.id != first.name  # two folders may hold runs of one name
    assert {(run.name, run.group) for run in runs} == {("a-pods-seed3-P-2", "a-pods-P-2")}
    assert [run.config["optimizer"]["learning_rate"] for run in runs] == [1e-3, 1e-3]


def test_wandb_is_given_our_keys_and_an_axis(tmp_path, monkeypatch):
    """What it accepts is logged for real in the test above."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "not-this-one")
    axes: dict = {}
    lines: dict = defaultdict(dict)  # wandb puts what is logged at one step together
    monkeypatch.setattr(
        wandb.Run,
        "define_metric",
        lambda _, name, step_metric=None: axes.update({name: step_metric}),
    )
    monkeypatch.setattr(wandb.Run, "log", lambda _, line, step, **__: lines[step].update(line))
    keys = ["wandb.project=p", "wandb.entity=e", "wandb.group=g", "wandb.tags=[x,y]"]
    with log(tmp_path, range(1, 3), "run=r", "logger=[wandb]", *keys):
        run = wandb.run
    assert (run.project, run.entity, run.group, [*run.tags]) == ("p", "e", "g", ["x", "y"])
    assert axes["*"] == "train_seconds"
    assert [(step, line["train_seconds"]) for step, line in lines.items()] == [(1, 1), (2, 2)]


def test_a_logger_without_a_key_or_its_package_is_one_line(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"^logger=wandb: .*; log in, set WANDB"):
        log(tmp_path, range(1), "logger=[wandb]")
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^logger=wandb: wandb is not installed; uv pip install"):
        compose("logger=[wandb]")


def test_the_folder_of_tensorboard_is_named_if_it_cannot_be_made(tmp_path):
    (tmp_path / "tensorboard").write_text("")
    with pytest.raises(
        UserError, match=r"^logger=tensorboard: .*; correct that, or leave tensorboard"
    ):
        log(tmp_path, range(1), "logger=[tensorboard]")


def test_a_key_is_asked_for_before_a_model_loads(monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with pytest.raises(UserError, match=r"^logger=wandb: .*; log in, set WANDB_MODE=offline"):
        compose("logger=[wandb]")


def test_counters_add_up_over_steps_and_go_on_from_a_checkpoint():
    step = step_of({"a": [0.0, 1.0, 0.5, 0.2], "b": [1.0] * 4}, [0, 1, 5])
    saved = {"tokens_generated": 100, "tokens_trained": 50, "rollouts_generated": 80}
    saved |= {"rollouts_trained": 30, "step": 9}
    meter = logs.Meter(saved)
    lines = []
    for loss in (2.0, 4.0):
        meter.updates = [{"loss": 1.0, "kl": None}, {"loss": loss, "grad_norm": 4.0}]
        lines.append(meter.line(step, Clock(), {"engine/logprob_gap": 3.0}))
    assert meter.updates == []
    counters = [[line[name] for name in logs.COUNTERS] for line in lines]
    assert counters == [[120, 50 + 1 + 2 + 2, 88, 33], [140, 55 + 1 + 2 + 2, 96, 36]]
    assert [line["loss"] for line in lines] == [1.5, 2.5]
    others = {"grad_norm": 4.0, "engine/logprob_gap": 3.0}
    assert all(line.items() >= others.items() and "kl" not in line for line in lines)
