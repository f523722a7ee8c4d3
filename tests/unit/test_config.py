"""Schemas, free keys, saved configs, and what is imported before a check.

It alone guards, by new interpreters: what a check, the light modules and their tests import."""

import os
import re
import subprocess
import sys
from itertools import zip_longest
from unittest import mock

import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import rewards
from pods import tasks
from pods.config import command
from pods.config.command import CONFIG_DIR, load_config
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from tests.configs import compose
from tests.fake_run import edit_config
from tests.figures import in_process

WRONG = {  # overrides: the line
    "model.dtype=c": "model.dtype=c: must be 'float32' or 'bfloat16'",
    "task.gold=b": "task.gold=b: must be 'as_is', 'after_hashes' or 'boxed', "
    "or path/to/file.py:function",
    "loss.beta=-1": "loss.beta=-1: must be greater than or equal to 0",
    "loss.beta=nan": "loss.beta=NaN: must be a finite number",
    "sampling.stop=[a,null]": 'sampling.stop=["a", null]: must be a valid string',
    "rewards.functions=my.py:f": "rewards.functions=my.py:f: must be {key: value}",
    "rewards.weights.a=x": "rewards.weights.a=x: must be a valid number",
    "budget=3": "budget=3: must be a valid dictionary or instance of BudgetKeys",
    "optimizer.betas=[0.9,x]": 'optimizer.betas=[0.9, "x"]: must be a valid number',
    "optimizer.betas=[0.9,1]": "optimizer.betas=[0.9, 1]: must be less than 1",
    "lora.target_modules=[]": "lora.target_modules=[]: must have at least 1 item after validation, "
    "not 0",
    "sampling.stop=['']": 'sampling.stop=[""]: must have at least 1 character',
    "logger=wanb": "logger=wanb: must be 'console', 'wandb' or 'tensorboard'; did you mean wandb?",
    "rewards.weights={1:x}": "rewards.weights.1=x: must be a valid number",
    "seed=abc": "seed=abc: must be a valid integer",
    "optimizer.lr=1e-3": "optimizer.lr=0.001: unknown; did you mean optimizer.learning_rate?",
    "lora.rnk=1 seed=-1": "seed=-1: must be greater than or equal to 0",  # values first
}


@pytest.mark.parametrize("overrides", WRONG)
def test_a_wrong_value_is_one_line_with_its_key_and_what_it_must_be(overrides):
    with pytest.raises(UserError) as error:
        compose(*overrides.split())
    assert str(error.value) == WRONG[overrides]


CHOICES = {
    group: [path.stem for path in sorted((CONFIG_DIR / group).glob("[!_]*.yaml"))]
    for group in ("task", "model", "rewards")
}


def test_a_group_has_a_file_for_everything_that_is_trained_with():
    trained = {name for name in tasks.NAMES if name == "own" or "train" in tasks.TASKS[name].splits}
    assert {*CHOICES["task"]} == trained
    assert {*CHOICES["rewards"]} == {*rewards.VERSIONS}


@pytest.mark.parametrize("names", [*zip_longest(*CHOICES.values())], ids=str)
def test_every_choice_of_a_group_composes(names):
    chosen = {group: name for group, name in zip(CHOICES, names, strict=True) if name}
    overrides = [f"{group}={name}" for group, name in chosen.items()]
    config = command.typed(TrainConfig, command.compose("train", overrides))
    values = {
        "task": config.task.name,
        "model": config.model.name,
        "rewards": config.rewards.version,
    }
    assert values.items() >= chosen.items()


def test_free_keys_are_taken_as_typed():
    overrides = [
        "rewards.functions.brevity=my_rewards.py:brevity",
        "rewards.weights.brevity=0.5",
        "advantage_kwargs={scale: 2}",
        "trl={optim_args: a}",
        "logger=console",
        "run=3",
    ]
    config = command.typed(TrainConfig, command.compose("train", overrides))
    assert config.rewards.functions == {"brevity": "my_rewards.py:brevity"}
    assert config.rewards.weights == {"correctness": 1, "format": 1, "tags": 1, "brevity": 0.5}
    assert config.advantage_kwargs == {"scale": 2}
    assert config.trl["optim_args"] == "a"
    assert (config.logger, config.run) == (["console"], "3")


def test_composing_inside_a_job_leaves_its_hydra_as_it_is():
    GlobalHydra.instance().hydra = outer = object()
    assert command.compose("train", ["seed=5"]).seed == 5
    assert GlobalHydra.instance().hydra is outer
    GlobalHydra.instance().clear()  # another object than before: Hydra's copy


RUN = ("experiment=gsm8k_qwen", "run=r", "engine=vllm", "advantage=rloo")


@pytest.fixture
def saved(tmp_path):
    """The config of a run as train.py saves it."""
    path = tmp_path / "r" / ".hydra" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(OmegaConf.to_yaml(compose(*RUN).model_dump()))
    assert load_config(path) == compose(*RUN)
    return path


def test_a_config_of_0_3_can_be_read(saved):
    """One that was saved before there were keys of wandb."""
    values = OmegaConf.load(saved)
    del values.wandb
    OmegaConf.save(values, saved)
    assert load_config(saved) == compose(*RUN)


def test_the_saved_config_of_a_priced_run_can_be_run_again(saved, monkeypatch):
    prices = compose("clock=l40s").clock
    edit_config(saved, clock=prices.model_dump())
    again = []
    train = command.command("train", TrainConfig)(again.append)
    flags = ["--config-dir", str(saved.parent), "--config-name", "config"]
    monkeypatch.setattr(sys, "argv", ["train.py", *flags, "seed=3"])
    train()
    del command.SEARCHED[1:]
    assert again[0].clock == prices
    assert (again[0].seed, again[0].run) == (3, "r-seed-3")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("engine: vllm", "engine: vllm\nwatch: true", "watch=true: unknown; --help lists all keys"),
        ("  check_every:", "  often:", "guard.often=20: unknown; "),
        ("seed: 0", "seed: one", "seed=one: must be a valid integer"),
        (None, "a: [", "while parsing"),
        (None, "3", "Invalid loaded object type"),
    ],
    ids=["a further key", "another name", "another type", "no YAML", "a number"],
)
def test_a_file_that_is_no_config_of_today_is_one_line(saved, old, new, reason):
    text = saved.read_text()
    assert text.count(f"\n{old}") == 1 or old is None
    saved.write_text(new if old is None else text.replace(old, new))
    with pytest.raises(UserError) as error:
        load_config(saved)
    start = f"{saved}: not a config of this version of PODS, but made by an earlier one or "
    line = rf"{re.escape(start)}.*{re.escape(reason)}.*the commit that \S*r/meta.json names"
    assert re.fullmatch(line, str(error.value))


@pytest.mark.parametrize("key", ["run", "model.name", "task.name"])
@pytest.mark.parametrize("name", ["/../../pwn", "..", "a/b"])
def test_a_name_in_a_saved_config_leaves_no_folder(saved, key, name):
    edit_config(saved, **{key: name})
    with pytest.raises(
        UserError, match=rf"^{saved}: .*{key}={name}: must be a folder name without /"
    ):
        load_config(saved)


MODELS = {"torch", "transformers", "trl", "peft", "accelerate"}
LIGHT = [
    *("pods.algorithms", "pods.advantages", "pods.rollouts", "pods.metrics", "pods.dry_run"),
    *("pods.scoring", "rewards", "pods.files", "pods.runs.folder", "pods.runs.rollout_log"),
    *("pods.figures.curves", "pods.figures.statistics"),
    *("pods.evaluation.scores", "pods.evaluation.targets"),
]
LIGHT_TESTS = {
    "unit": "advantages algorithms arithmetic by_column config curves files gpu import_published "
    "recompute results rewards rewards_published rewards_strict rewards_tags rewards_types rules "
    "rollout_log scores selection smollm2 sources statistics tasks tasks_files tasks_own watch",
    "commands": "board inspect mistakes plot report results_by_hand speedup sweeps table",
}
LIGHT += [f"tests.{tier}.test_{n}" for tier, names in LIGHT_TESTS.items() for n in names.split()]
SCRIPTS = [f"scripts.{path.stem}" for path in (CONFIG_DIR.parent / "scripts").glob("*.py")]
HEAVY = MODELS | {"datasets", "scipy", "matplotlib"}


@pytest.mark.parametrize(
    ("names", "absent"),
    [
        (", ".join(["train, evaluate_run, pods.training.check", *SCRIPTS]), {*HEAVY, "pandas"}),
        ("train, pods.engines.choose, pods.models.unsloth", {"trl", "transformers", "peft"}),
        (", ".join(LIGHT), MODELS),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(names, absent):
    """Nor what Unsloth rewrites, before Unsloth."""
    assert not absent & imported(names)


def test_the_rules_import_numpy_alone():
    assert imported("pods.rules") - sys.stdlib_module_names == {"numpy", "pods"}


def imported(names: str) -> set[str]:
    """The packages that these imports load in a new interpreter."""
    code = f"""import sys
before = set(sys.modules)
import {names}
print(*set(sys.modules) - before)"""
    command = [sys.executable, "-c", code]
    modules = subprocess.check_output(command, cwd=CONFIG_DIR.parent, text=True).split()
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize(("value", "after"), [({}, "1"), ({"HF_HUB_DISABLE_TELEMETRY": "0"}, "0")])
def test_no_use_is_reported_to_the_hub_unless_the_user_says_so(value, after):
    """TRL would report each trainer; the hub's package reads the variable when it is imported."""
    with mock.patch.dict(os.environ, value):
        if not value:
            os.environ.pop("HF_HUB_DISABLE_TELEMETRY", None)
        assert in_process("train.py", "--help") == 0
        assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == after
