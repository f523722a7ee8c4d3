"""Names of a sweep's runs, what --help prints, and a reader that closes the pipe."""

import os
import re
import sys
from unittest.mock import Mock

import pytest

from pods.config import command, sweeps
from pods.config.command import CONFIG_DIR
from pods.config.keys import TrainConfig, keys
from pods.evaluation.config import EvaluateConfig
from tests.configs import composed

NAME = "quickstart-pods-max_variance-n8-m4-seed0"
RUNS = [
    ("optimizer.learning_rate=2e-3", f"{NAME}-optimizer.learning_rate-0.002"),
    ("rewards=v2 prompts_per_step=8,4 optimizer.learning_rate=1e-3", NAME),  # all by default
    ("seed=3 rule=random kept_per_prompt=2", "quickstart-pods-random-n8-m2-seed3"),
    ("algorithm=grpo", "quickstart-grpo-n4-m4-seed0"),
    ("algorithm=dapo algorithm_kwargs.rounds=2", "quickstart-dapo-rounds2-n4-m4-seed0"),
    ("algorithm=speed rule=random", "quickstart-speed-random-n8-m4-seed0"),
    ("algorithm=my.py:f", "quickstart-f-n8-m4-seed0"),
    ("algorithm=grpo_ga kept_per_prompt=2", "quickstart-grpo_ga-n8-m2-seed0"),
    *[(f"run={value}", value) for value in ("3", "1.5", "true")],
    ("rewards=strict rule_kwargs.k=1", f"{NAME}-rewards-strict-rule_kwargs.k-1"),
    ("task.system=null warm_up=true", f"{NAME}-task.system-null-warm_up-true"),
    (f"task.system={'x' * 50}", f"{NAME}-task.system-77cf1206"),  # a hash of a long value
    (
        " ".join(f"rewards.functions.f{i}=my_rewards.py:f{i}" for i in range(1, 5)),  # many
        "quickstart-pods-max_variance-f1-f2-f3-f4-n8-m4-seed0-41d9f03e",
    ),
    (
        "rewards.functions.f=a/b.py:g",
        "quickstart-pods-max_variance-f-n8-m4-seed0-rewards.functions.f-a_b.py_g",
    ),
    ("advantage=rloo", "quickstart-pods-max_variance-rloo-n8-m4-seed0"),
    ("rule=my.py:rule", "quickstart-pods-rule-n8-m4-seed0"),
    ("task=own", "quickstart-pods-max_variance-own-n8-m4-seed0-task-own"),
    ("budget.train_seconds=5 output_dir=x", NAME),  # a run may go on with these
    ("budget.train_seconds=5,9", f"{NAME}-budget.train_seconds-5"),
    ("run=mine seed=1,2", "mine-seed-1"),
    ("run=mine-${seed} seed=1,2 lora.rank=4", "mine-1"),
]


@pytest.mark.parametrize(("command", "name"), RUNS)
def test_what_is_overridden_and_not_in_the_name_is_appended(command, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text("def f(step):\n    yield step.prompts, step.n\n")
    unnamed = sweeps.unnamed(command.split(), multirun=True)
    job = [override.partition(",")[0] for override in command.split()]
    config = composed(*job)
    assert sweeps.name(config, job, unnamed, lambda overrides: composed(*overrides)) == name


@pytest.mark.parametrize(
    ("typed", "flags", "overrides", "unnamed"),
    [
        ("--cfg job seed=1", "--cfg job", "++seed=1", "seed"),
        ("seed=1 -c all --package task", "-c all --package task", "++seed=1", "seed"),
        ("seed=1 --info", "--info", "++seed=1", "seed"),
        ("--info config seed=1", "--info config", "++seed=1", "seed"),
        ("--config-dir a=b task=own", "--config-dir a=b", "task=own", "task"),
        ("-cn train --hydra-help", "-cn train --hydra-help", "", ""),
        ("--config-dir=here ~trl.a", "--config-dir=here", "~trl.a", "trl.a"),
        ("run=1e3", "", "++run='1e3'", "run"),  # a name
        ("run=007 question=true", "", "++run='007' ++question='true'", "run,question"),
        (
            "seed=1,2 lora.rank=4 --multirun",
            "--multirun",
            "++seed=1,2 ++lora.rank=4",
            "lora.rank",
        ),
    ],
    ids=lambda text: text.replace(" ", "_"),
)
def test_flags_of_hydra_take_their_values_with_a_space(typed, flags, overrides, unnamed):
    train = command.Command(print, "train", TrainConfig, CONFIG_DIR)
    expected = [*flags.split(), *overrides.split(), f"++{sweeps.UNNAMED}=[{unnamed}]"]
    assert command.hydra_arguments(train, typed.split()) == expected


def test_a_command_without_groups_looks_for_configs_in_a_folder_of_the_users(tmp_path, monkeypatch):
    """Hydra would take its keys `experiment` and `model` for groups if the folder had them."""
    for group, values in {"experiment": "experiment: mine", "model": "name: mine"}.items():
        (tmp_path / group).mkdir()
        (tmp_path / group / "mine.yaml").write_text(f"# @package _global_\n{values}\n")
    arguments = ["--config-dir", str(tmp_path), "run=null", "experiment=mine", "model=mine"]
    monkeypatch.setattr(sys, "argv", ["evaluate_run.py", *arguments])
    seen = []

    def main(config):
        seen.append(command.compose("train", [f"experiment={config.experiment}"]).experiment)

    command.command("evaluate", EvaluateConfig, CONFIG_DIR / "evaluate")(main)()
    del command.SEARCHED[1:]
    assert seen == ["mine"]


def test_the_summary_of_a_sweep_names_what_failed():
    jobs = [("a", ""), ("b", "run=b: a reason"), ("c", "")]
    next_command = "next: uv run evaluate_run.py 'run=[a,c]'"
    assert sweeps.summary(jobs) == f"sweep: 2 of 3 jobs done\nb: run=b: a reason\n{next_command}"


def test_the_summary_of_a_stopped_sweep_names_the_run_that_was_stopped(monkeypatch, capsys):
    def train(config):
        if config.seed == 2:
            sys.exit(130)

    monkeypatch.setattr(sys, "argv", ["train.py", "-m", "seed=1,2,3"])
    with pytest.raises(SystemExit):
        command.command("train", TrainConfig)(train)()
    shown = capsys.readouterr().out
    assert "sweep: 1 of 2 jobs done\n" in shown
    assert "seed2: was stopped; the same command goes on with it\n" in shown


def test_help_has_the_commands_own_keys_and_groups_with_comments():
    text = command.help_text("title", CONFIG_DIR, "train")
    words = set(re.findall(r"\w+", text))
    missing = [key for key in keys(TrainConfig) if key.rpartition(".")[2] not in words]
    assert {key.partition(".")[0] for key in missing} == {"task"}, missing  # of task=own
    assert "# n: completions sampled for each prompt" in text
    assert "experiment=quickstart, any of chemistry_qwen, gsm8k_a100, " in text
    assert "figure" not in text
    assert "checkpoint: last" in command.help_text("title", CONFIG_DIR / "checkpoint", "chat")
    report = command.help_text("title", CONFIG_DIR, "report")
    assert "resamples: 10000" in report, "those of _comparison.yaml, too"


@pytest.mark.parametrize("arguments", [["--help"], ["logger=[]"]])
def test_a_closed_pipe_ends_quietly(arguments, monkeypatch, capfd):
    keep = os.dup(1)
    monkeypatch.setattr(sys, "argv", ["x.py", *arguments])
    closed = Mock(side_effect=BrokenPipeError, __globals__={"__doc__": ""})
    monkeypatch.setattr(command, "help_text", closed)
    with pytest.raises(SystemExit) as end:
        command.command("train", TrainConfig)(closed)()
    assert not end.value.code
    os.dup2(keep, 1)
    assert capfd.readouterr() == ("", "")
