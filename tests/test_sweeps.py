"""Names of a sweep's runs, what --help prints, and a reader that closes the pipe."""

import os
import re
import sys

import pytest

from pods.config import command, sweeps
from pods.config.command import CONFIG_DIR
from pods.config.keys import TrainConfig, keys
from tests.configs import composed

NAME = "quickstart-pods-max_variance-n32-m16-seed0"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("optimizer.learning_rate=1e-3", f"{NAME}-optimizer.learning_rate-0.001"),
        ("seed=3 rule=random kept_per_prompt=8", "quickstart-pods-random-n32-m8-seed3"),
        ("algorithm=grpo", "quickstart-grpo-all-n16-m16-seed0"),
        ("algorithm=dapo algorithm.params.rounds=2", "quickstart-dapo-rounds2-n16-m16-seed0"),
        ("algorithm=speed rule=random", "quickstart-speed-n32-m16-seed0-rule-random"),
        ("rewards=strict rule.params.k=1", f"{NAME}-rewards-strict-rule.params.k-1"),
        ("task.system=null backend.warmup=true", f"{NAME}-task.system-null-backend.warmup-true"),
        ("rewards.functions.f=a/b.py:g",
         "quickstart-pods-max_variance-f-n32-m16-seed0-rewards.functions.f-a_b.py_g"),
        ("advantage=rloo", "quickstart-pods-max_variance-rloo-n32-m16-seed0"),
        ("rule.name=my.py:rule", "quickstart-pods-rule-n32-m16-seed0"),
        ("task=own", "quickstart-pods-max_variance-own-n32-m16-seed0-task-own"),
        ("budget.train_seconds=5 output_dir=x", NAME),  # a run may go on with these
        ("budget.train_seconds=5,9", f"{NAME}-budget.train_seconds-5"),
        ("run=mine seed=1,2", "mine-seed-1"),
        ("run=mine-${seed} seed=1,2 lora.rank=4", "mine-1"),
    ],
)  # fmt: skip
def test_what_is_overridden_and_not_in_the_name_is_appended(monkeypatch, command, name):
    monkeypatch.setenv(sweeps.SWEPT, "")
    sweeps.note_swept(["-m", *command.split()])
    job = [override.partition(",")[0] for override in command.split()]
    config = composed(*job)
    config.run = sweeps.name(config, job)
    assert config.run == name


def test_a_long_value_is_shown_by_its_hash():
    first, second = (sweeps.suffix("task.system", "x" * length) for length in (500, 501))
    assert len(first) < 30
    assert first != second


def test_help_has_the_commands_own_keys_and_groups_with_comments():
    text = command.help_text("title", CONFIG_DIR / "train.yaml")
    words = set(re.findall(r"\w+", text))
    missing = [key for key in keys(TrainConfig) if key.rpartition(".")[2] not in words]
    assert all(key.startswith(("trl.", "task.", "rule.", "adv")) for key in missing), missing
    assert "# n: completions sampled for each prompt" in text
    assert "engine=auto, any of auto, transformers, trl, unsloth, vllm" in text
    assert "figure" not in text
    shared = command.help_text("title", CONFIG_DIR / "checkpoint" / "chat.yaml")
    assert "checkpoint: last" in shared  # of _shared.yaml


def test_a_closed_pipe_ends_quietly(monkeypatch, capfd):
    def closed(*_: object) -> None:
        raise BrokenPipeError

    keep = os.dup(1)
    monkeypatch.setattr(sys, "argv", ["x.py", "--help"])
    monkeypatch.setattr(command, "help_text", closed)
    command.command("train", TrainConfig)(lambda config: None)()
    os.dup2(keep, 1)
    assert capfd.readouterr() == ("", "")
