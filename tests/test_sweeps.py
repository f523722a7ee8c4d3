"""Names of a sweep's runs, what --help prints, and a reader that closes the pipe."""

import os
import re
import sys

import pytest

from pods.config import command, sweeps
from pods.config.command import CONFIG_DIR, compose
from pods.config.keys import TrainConfig, keys

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
        ("rewards.functions.f=a/b.py:g", f"{NAME}-rewards.functions.f-a_b.py_g"),
        ("budget.train_seconds=5 output_dir=x", NAME),  # a run may go on with these
        ("budget.train_seconds=5,9", f"{NAME}-budget.train_seconds-5"),
        ("run=mine seed=1,2", "mine-seed-1"),
        ("run=mine-${seed} seed=1,2", "mine-1"),
    ],
)
def test_what_is_overridden_and_not_in_the_name_is_appended(monkeypatch, command, name):
    monkeypatch.setenv(sweeps.SWEPT, "")
    sweeps.note_swept(command.split())
    job = [override.partition(",")[0] for override in command.split()]
    config = compose("train", TrainConfig, [override for override in job if ":" not in override])
    config.run = sweeps.name(config, job)
    assert config.run == name


def test_a_long_value_is_shown_by_its_hash():
    assert len(sweeps.suffix("task.system", "x" * 500)) < 30
    assert sweeps.suffix("task.system", "x" * 500) != sweeps.suffix("task.system", "x" * 501)


def test_help_has_the_commands_own_keys_and_groups_with_comments():
    said = command.help_text("title", CONFIG_DIR / "train.yaml")
    names = {key: key.rpartition(".")[2] for key in keys(TrainConfig)}
    missing = [key for key, name in names.items() if not re.search(rf"\b{name}[:=]", said)]
    # of task=own alone, or shown on one line with their group
    assert set(missing) <= {"task.source", "task.question", "task.answer", "task.gold", "task.kind",
                            "rule.params", "rule.needs_logprobs", "advantage.params",
                            "prompts.params"}  # fmt: skip
    assert "# n: completions sampled for each prompt" in said
    assert "engine=auto, any of auto, transformers, trl, unsloth, vllm" in said
    assert "figure" not in said
    shared = command.help_text("title", CONFIG_DIR / "checkpoint" / "chat.yaml")
    assert "temperature: null" in shared
    assert "checkpoint: last" in shared  # of _shared.yaml
    own = command.help_text("title", CONFIG_DIR / "evaluate" / "evaluate.yaml")
    assert "any of" not in own  # it has no groups


def test_a_closed_pipe_ends_quietly(monkeypatch, capfd):
    def closed(*_: object) -> None:
        raise BrokenPipeError

    keep = os.dup(1)
    monkeypatch.setattr(sys, "argv", ["x.py", "--help"])
    monkeypatch.setattr(command, "help_text", closed)
    command.command("train", TrainConfig)(lambda config: None)()
    os.dup2(keep, 1)
    assert capfd.readouterr() == ("", "")
