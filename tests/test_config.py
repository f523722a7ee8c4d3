"""Schemas, dict fields that take new keys, Hydra's settings, saved configs."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from pydantic import Field

from pods.config import command
from pods.config.command import CONFIG_DIR, saved
from pods.config.errors import UserError
from pods.config.keys import FunctionPath, Section, Text, TrainConfig
from pods.config.mistakes import validated
from pods.runs.folder import RunFolder
from pods.training.check import settle
from tests.configs import compose, get


class Inner(Section):
    size: int | None = Field(gt=0)
    part: float = Field(gt=0, le=1)
    items: list[int]


class Outer(Section):
    name: Literal["a", "b"] | None
    function: Literal["a"] | FunctionPath
    low: float = Field(ge=0)
    run: Text
    weights: dict[str, float]
    inner: Inner | None = None


RIGHT = {"name": "a", "function": "my.py:f", "low": 0, "run": 3, "weights": {}}


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"name": "c"}, "name=c: must be one of a, b"),
        ({"function": "b"}, "function=b: must be one of a, or path/to/file.py:function"),
        ({"low": -1}, "low=-1: must be 0 or more"),
        ({"low": float("nan")}, "low=nan: must be a finite number"),
        ({"low": True}, "low=true: must be a number"),
        ({"run": [1, None]}, "run=[1,null]: must be a text"),
        ({"weights": {"a": "x"}}, "weights.a=x: must be a number"),
        ({"weights": 3}, "weights=3: must be keys with values, {name: value}"),
        ({"inner": 3}, "inner=3: must be a group of keys (size, part, items) or null"),
        ({"inner": {"size": 0, "part": 1, "items": []}}, "inner.size=0: must be greater than 0"),
        ({"inner": {"size": 1, "part": 0, "items": []}}, "inner.part=0: must be in (0, 1]"),
        (
            {"inner": {"size": "x", "part": 1, "items": []}},
            "inner.size=x: must be an integer or null",
        ),
        (
            {"inner": {"size": 1, "part": 1, "items": ["x"]}},
            "inner.items=[x]: must be a list of integers",
        ),
        ({"inner": {"size": 1, "part": 1}}, "inner.items: has no value; set inner.items=<value>"),
        ({"loww": 1}, "loww: unknown; did you mean low?"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_key_and_what_it_must_be(wrong, line):
    assert validated(Outer, RIGHT).run == "3"
    with pytest.raises(UserError) as error:
        validated(Outer, RIGHT | wrong)
    assert str(error.value) == line


@pytest.mark.parametrize(
    "group",
    ["rule", "advantage", "algorithm", "engine", "backend", "rewards", "model"],
)
def test_every_choice_of_a_group_composes(group):
    names = [p.stem for p in (CONFIG_DIR / group).glob("*.yaml") if not p.stem.startswith("_")]
    assert names
    for name in names:
        config = command.typed(
            TrainConfig, command.compose("train", TrainConfig, [f"{group}={name}"])
        )
        if group not in ("rewards", "model"):
            assert get(config, f"{group}.name") == name


def test_dict_fields_take_new_keys_as_typed():
    config = command.typed(
        TrainConfig,
        command.compose(
            "train",
            TrainConfig,
            [
                "rewards.functions.brevity=my_rewards.py:brevity", "rewards.weights.brevity=0.5",
                "rule.params.k=3", "advantage.params={scale: 2}", "algorithm.params.rounds=2",
            ],
        ),
    )  # fmt: skip
    assert config.rewards.functions == {"brevity": "my_rewards.py:brevity"}
    assert config.rewards.weights == {"correctness": 1, "format": 1, "tags": 1, "brevity": 0.5}
    assert (config.rule.params, config.advantage.params) == ({"k": 3}, {"scale": 2})
    assert config.algorithm.params == {"rounds": 2}


def test_composing_inside_a_job_leaves_its_hydra_alone():
    with initialize_config_dir(str(CONFIG_DIR / "evaluate"), version_base=None):
        outer = GlobalHydra.instance().hydra
        assert command.compose("train", TrainConfig, ["seed=5"]).seed == 5
        assert GlobalHydra.instance().hydra is outer


@pytest.mark.parametrize(
    ("folder", "name", "sweeps"),
    [
        ("", "train", "${output_dir}/.sweeps"),
        ("evaluate", "evaluate", "${results_dir}/.sweeps"),
    ],
)
def test_hydra_writes_nothing_by_itself(folder, name, sweeps):
    with initialize_config_dir(str(CONFIG_DIR / folder), version_base=None):
        settings = hydra_compose(name, return_hydra_config=True).hydra
    raw = OmegaConf.to_container(settings, resolve=False)
    assert (raw["run"], raw["sweep"]) == ({"dir": "."}, {"dir": sweeps, "subdir": "."})
    assert raw["output_subdir"] is None
    assert settings.runtime.choices["hydra/job_logging"] == "none"
    assert settings.runtime.choices["hydra/hydra_logging"] == "none"


def test_comparisons_have_one_set_of_defaults():
    shared = OmegaConf.load(CONFIG_DIR / "_comparison.yaml")
    for name in ("plot", "speedup", "report"):
        assert not OmegaConf.load(CONFIG_DIR / f"{name}.yaml").keys() & shared.keys()


def test_gsm8k_a100_is_gsm8k_h100_with_a_larger_model():
    small, large = (compose(f"experiment=gsm8k_{name}", "run=r") for name in ("h100", "a100"))
    assert (small.model.name, large.model.name) == ("qwen2.5-3b-instruct", "qwen2.5-7b-instruct")
    assert (large.experiment, large.model.load_in_4bit) == ("gsm8k_a100", False)
    large.experiment, large.model = small.experiment, small.model
    assert small == large


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The config of a run as train.py saves it."""
    config = compose("experiment=gsm8k_qwen", "run=r", "engine=vllm", "advantage=rloo")
    path = tmp_path / "r" / ".hydra" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(OmegaConf.to_yaml(config.model_dump()))
    return path


def test_a_saved_config_is_read_as_it_was(saved):
    config = compose("experiment=gsm8k_qwen", "run=r", "engine=vllm", "advantage=rloo")
    assert load(saved) == config


@pytest.mark.parametrize(
    ("removed", "added", "key"),
    [
        (None, "backend.engine", "backend.engine"),  # a key that is gone
        ("engine.check_every", None, "engine.check_every"),  # a key that is new
    ],
)
def test_a_saved_config_of_an_earlier_version_is_one_line(saved, removed, added, key):
    values = OmegaConf.load(saved)
    if removed:
        group, _, name = removed.partition(".")
        del values[group][name]
    if added:
        OmegaConf.update(values, added, "vllm")
    saved.write_text(OmegaConf.to_yaml(values))
    with pytest.raises(UserError) as error:
        load(saved)
    assert str(error.value) == (
        f"{saved}: made by an earlier version of PODS (key {key}); train it again, or check out "
        f"the commit that {saved.parents[1] / 'meta.json'} names"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: one", "seed=one: must be an integer"),
        ("a: [", "not a config"),
        ("3", "not a config"),
        ("- 3", "not a config"),
    ],
)
def test_a_file_that_is_no_saved_config_is_named(tmp_path, text, said):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        load(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


CHANGES = (  # override, and what the refusal of a resume names
    ("sampling.temperature=0.5", "sampling.temperature (0.9 -> 0.5)"),
    ("advantage=dr_grpo", "advantage.name (rloo -> dr_grpo)"),
    ("engine.importance_sampling_correction=true", "(False -> True)"),
    ("rewards.functions.brevity=my.py:f", "rewards.functions.brevity (None -> my.py:f)"),
    ("engine=transformers", None),
    ("engine.max_sequences=4", None),
)


@pytest.mark.parametrize(("override", "refused"), CHANGES, ids=[change for change, _ in CHANGES])
def test_a_resume_may_change_the_engine_and_nothing_of_the_experiment(
    saved, override, refused, capsys
):
    overrides = ["experiment=gsm8k_qwen", "run=r", "engine=vllm", "advantage=rloo", override]
    run = f"output_dir={saved.parents[2]}"
    values = command.compose("train", TrainConfig, [*overrides, run])
    config = command.typed(TrainConfig, values)
    settle(config)
    config.backend.name, config.optimizer.name = "transformers", "adamw_torch_fused"
    if refused is None:
        RunFolder(config).refuse_changes()
        assert "run=r resumes with another engine: engine." in capsys.readouterr().err
        return
    with pytest.raises(UserError, match="was started with another config") as error:
        RunFolder(config).refuse_changes()
    assert refused in str(error.value)


def imported(*modules: str) -> set[str]:
    """The modules of a new process after it has imported these."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    root = CONFIG_DIR.parent
    return set(subprocess.check_output([sys.executable, "-c", code], cwd=root, text=True).split())


def test_nothing_heavy_is_imported_before_a_config_is_checked():
    heavy = {"torch", "transformers", "trl", "datasets", "peft", "scipy", "matplotlib"}
    assert not heavy & imported("train", "evaluate_run", "pods.training.check")


def test_pods_config_imports_nothing_else_of_pods():
    files = [path.stem for path in (CONFIG_DIR.parent / "pods" / "config").glob("*.py")]
    names = imported(*(f"pods.config.{name}" for name in files if name != "__init__"))
    ours = {name for name in names if name.split(".")[0] in ("pods", "rewards")}
    assert {name for name in ours if not name.startswith("pods.config")} == {"pods"}
