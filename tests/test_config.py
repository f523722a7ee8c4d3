"""Schemas, free keys, saved configs, and what is imported before a check."""

import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from pydantic import Field

from pods.config import command
from pods.config.command import CONFIG_DIR, load_config
from pods.config.errors import UserError
from pods.config.keys import FunctionPath, Section, Text, TrainConfig
from pods.config.mistakes import validated
from pods.runs.folder import RunFolder
from tests.configs import compose, get


class Inner(Section):
    size: int | None = Field(gt=0)
    part: float = Field(gt=0, le=1)
    items: list[int]


class Outer(Section):
    name: Literal["a", "b"] | None
    function: Literal["a"] | FunctionPath
    low: float = Field(ge=0)
    run: list[Text] | Text
    weights: dict[str, float]
    inner: Inner | None = None


RIGHT = {"name": "a", "function": "my.py:f", "low": 0, "run": 3, "weights": {}}
INNER = {"size": 1, "part": 1, "items": []}


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"name": "c"}, "name=c: must be 'a' or 'b'"),
        ({"function": "b"}, "function=b: must be 'a', or path/to/file.py:function"),
        ({"low": -1}, "low=-1: must be greater than or equal to 0"),
        ({"low": float("nan")}, "low=NaN: must be a finite number"),
        ({"run": [1, None]}, "run=[1, null]: must be a text"),
        ({"weights": {"a": "x"}}, "weights.a=x: must be a valid number"),
        ({"weights": {"a": float("inf")}}, "weights.a=Infinity: must be a finite number"),
        ({"inner": 3}, "inner=3: must be keys with values, {name: value}"),
        ({"inner": INNER | {"size": 0}}, "inner.size=0: must be greater than 0"),
        ({"inner": INNER | {"items": ["x"]}}, 'inner.items=["x"]: must be a valid integer'),
        ({"inner": {"size": 1, "part": 1}}, "inner.items: has no value; set inner.items=<value>"),
        ({"loww": 1}, "loww=1: unknown; did you mean low?"),
        ({"loww": 1, "low": -1}, "low=-1: must be greater than or equal to 0"),  # values first
        ({"loww": 1, "inner": {}}, "loww=1: unknown; did you mean low?"),  # absent keys last
    ],
)
def test_a_wrong_value_is_one_line_with_its_key_and_what_it_must_be(wrong, line):
    assert validated(Outer, RIGHT).run == "3"
    with pytest.raises(UserError) as error:
        validated(Outer, RIGHT | wrong)
    assert str(error.value) == line


def test_every_choice_of_a_group_composes():
    groups = ("algorithm", "rule", "advantage", "engine", "backend", "rewards", "model")
    choices = [sorted((CONFIG_DIR / group).glob("[!_]*.yaml")) for group in groups]
    for paths in zip_longest(*choices):
        named = {p.parent.name: p.stem for p in paths if p}
        overrides = [f"{group}={name}" for group, name in named.items()]
        config = command.typed(TrainConfig, command.compose("train", overrides))
        for group, name in named.items():
            if group not in ("rewards", "model"):
                assert get(config, f"{group}.name") == name


def test_free_keys_are_taken_as_typed():
    overrides = [
        "rewards.functions.brevity=my_rewards.py:brevity", "rewards.weights.brevity=0.5",
        "rule.params.k=3", "advantage.params={scale: 2}", "algorithm.params.rounds=2",
        "trl={delta: 4, optim_args: a}", "logger.wandb.project=mine",
    ]  # fmt: skip
    config = command.typed(TrainConfig, command.compose("train", overrides))
    assert config.rewards.functions == {"brevity": "my_rewards.py:brevity"}
    assert config.rewards.weights == {"correctness": 1, "format": 1, "tags": 1, "brevity": 0.5}
    assert (config.rule.params, config.advantage.params) == ({"k": 3}, {"scale": 2})
    assert config.algorithm.params == {"rounds": 2}
    assert config.trl.model_dump(exclude_none=True) == {"delta": 4.0, "optim_args": "a"}
    assert config.logger.wandb.project == "mine"


def test_composing_inside_a_job_leaves_its_hydra_as_it_is(monkeypatch):
    monkeypatch.setattr(GlobalHydra.instance(), "hydra", outer := object())
    assert command.compose("train", ["seed=5"]).seed == 5
    assert GlobalHydra.instance().hydra is outer


RUN = ("experiment=gsm8k_qwen", "run=r", "engine=vllm", "advantage=rloo")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The config of a run as train.py saves it."""
    path = tmp_path / "r" / ".hydra" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(OmegaConf.to_yaml(compose(*RUN).model_dump()))
    assert load_config(path) == compose(*RUN)
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text + "watch: true\n", "watch=true: unknown; --help lists all keys"),
        (lambda text: text.replace("  check_every:", "  often:"), "engine.often=20: unknown; "),
        (lambda text: text.replace("seed: 0", "seed: one"), "seed=one: must be a valid integer"),
        (lambda text: "a: [", "while parsing"),
        (lambda text: "3", "Invalid loaded object type"),
    ],
)
def test_a_file_that_is_no_config_of_today_is_one_line(saved, change, reason):
    saved.write_text(change(saved.read_text()))
    with pytest.raises(UserError) as error:
        load_config(saved)
    start, end = f"{saved}: not a config of this version of PODS (", "r/meta.json names"
    line = rf"{re.escape(start)}.*{re.escape(reason)}.*check out the commit that \S*{end}"
    assert re.fullmatch(line, str(error.value))


@pytest.mark.parametrize(
    ("override", "refused"),
    [
        ("sampling.temperature=0.5", "sampling.temperature (0.9 -> 0.5)"),
        ("advantage=dr_grpo", "advantage.name (rloo -> dr_grpo)"),
        ("engine.importance_sampling_correction=true", "(False -> True)"),  # part of the loss
        ("rewards.functions.brevity=my.py:reward", "brevity (None -> my.py:reward)"),
        ("engine=transformers", None),
        ("engine.max_sequences=4", None),
    ],
)
def test_a_resume_may_change_the_engine_and_nothing_of_the_experiment(
    saved, override, refused, capsys, monkeypatch
):
    monkeypatch.chdir(saved.parents[2])
    Path("my.py").write_text("def reward(completions, **columns): ...")
    folder = RunFolder(compose(*RUN, override, "output_dir=."))
    if refused is None:
        folder.refuse_changes()
        assert "run=r resumes with another engine: engine." in capsys.readouterr().err
    else:
        with pytest.raises(UserError, match=f"another config: .*{re.escape(refused)}; restore"):
            folder.refuse_changes()


def test_nothing_heavy_is_imported_before_a_config_is_checked():
    heavy = {"torch", "transformers", "trl", "datasets", "peft", "scipy", "matplotlib"}
    for names, more in (("train, evaluate_run", {"pandas"}), ("pods.training.check", set())):
        code = f"import sys, {names}; print(*sys.modules)"
        command = [sys.executable, "-c", code]
        modules = subprocess.check_output(command, cwd=CONFIG_DIR.parent, text=True).split()
        assert not (heavy | more) & set(modules)
