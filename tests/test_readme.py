"""Every override that README and docs name changes what they say it changes."""

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, get_type_hints

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from pods.config import command
from pods.config.keys import Section
from tests.conftest import ROOT

# override -> what the README says beside it; the key that it names is checked for all of them
PROMISES: dict[str, dict[str, Any]] = {
    "experiment=gsm8k_qwen": {"task.name": "gsm8k", "budget.train_seconds": 6 * 3600},
    "experiment=math_qwen": {"task.name": "math", "budget.train_seconds": 6 * 3600},
    "experiment=gsm8k_h100": {"model.path": "Qwen/Qwen2.5-3B-Instruct", "lora.rank": None},
    "experiment=gsm8k_a100": {"model.path": "Qwen/Qwen2.5-7B-Instruct", "lora.rank": None},
    "algorithm=grpo": {"rule.name": "all"},
    "algorithm=grpo_ga": {"rule.name": "all"},
    "algorithm=pods": {"rule.name": "max_variance"},
    "logger=[console,tensorboard]": {"logger.tensorboard": {}},
    "logger=[console,wandb]": {"logger.wandb.project": "pods"},
}
# The README names them as the default, or for a command whose experiment sets them already.
AS_BEFORE = {
    "experiment=quickstart", "algorithm=pods", "rewards=v2", "run=null", "repeats=5",
    "model.load_in_4bit=false", "optimizer.learning_rate=1e-3", "rollouts_per_prompt=32",
}  # fmt: skip
PLANNED = ("scripts/plan.py", "experiment=gsm8k_qwen")
# tests/test_extending.py runs the commands of docs/extending.md.
PAGES = [ROOT / "README.md", *(p for p in (ROOT / "docs").glob("*.md") if p.stem != "extending")]
PROSE = [page for page in PAGES if page.stem in ("README", "commands", "cluster", "paper", "files")]
NOT_CONFIG = ("hydra", "CUDA_VISIBLE_DEVICES")
VALUE = {"rewards": "version"}  # the key of a group that holds its name, where it is not `name`


def commands() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(script, overrides) of every command and of every `key=value` in the README."""
    blocks = [b for page in PAGES for b in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S)]
    ours = re.compile(r" train\.py|evaluate_run\.py|scripts/")
    lines = [line for line in "\n".join(blocks).splitlines() if ours.search(line)]
    for page in PROSE:
        lines += re.findall(r"`([^`\n]+=[^`\n]+)`", page.read_text())
    for line in lines:
        line = re.sub(r"<[\w ]+>|\.\.\.", "x", line.partition(" #")[0].replace("\\|", ","))
        tokens = re.findall(r"(?:\{[^}]*\}|[^\s;])+", line)
        scripts = [t for t in tokens if t.endswith(".py") and not t.startswith("benchmarks")]
        keys = [t for t in tokens if re.match(r"[a-z][\w./]*=.", t) and "://" not in t]
        alone = "evaluate_run.py" if "select_on=validation" in keys else "train.py"
        script = scripts[0] if scripts else alone
        columns = [alternatives(override) for override in keys]
        for i in range(max(map(len, columns), default=0)):
            yield script, tuple(column[min(i, len(column) - 1)] for column in columns)


def alternatives(override: str) -> list[str]:
    """seed=1,2 -> seed=1 and seed=2."""
    key, _, values = override.partition("=")
    return [override] if values[0] in "[{" else [f"{key}={v}" for v in values.split(",")]


@cache
def composed(script: str, overrides: tuple[str, ...] = ()) -> DictConfig:
    """The config of a command, without unknown keys."""
    name = script.removeprefix("scripts/").removesuffix(".py").removesuffix("_run")
    module = importlib.import_module(script.removesuffix(".py").replace("/", "."))
    folders = {"chat": "checkpoint", "export": "checkpoint", "plan": "planning"}
    own = command.CONFIG_DIR / folders.get(name, name)
    config = command.compose(name, [*overrides], own if own.is_dir() else command.CONFIG_DIR)
    assert not unknown(get_type_hints(module.main)["config"], config)
    return config


def unknown(schema: type[Section], config: DictConfig) -> list[tuple]:
    """The keys that a command does not have; values are not resolved yet."""
    try:
        schema.model_validate(OmegaConf.to_container(config))
    except ValidationError as error:
        return [p["loc"] for p in error.errors() if p["type"] == "extra_forbidden"]
    return []


COMMANDS = sorted(set(commands()))


@pytest.mark.parametrize(("script", "overrides"), COMMANDS, ids=[" ".join(o) for _, o in COMMANDS])
def test_what_the_readme_says_of_an_override_holds(script, overrides):
    config = tuple(t for t in overrides if not t.startswith(NOT_CONFIG))
    after, before = composed(script, config), composed(script)
    expected: dict[str, Any] = {}
    for override in config:
        changed = promised(script, override, after)
        expected |= changed  # a later override wins
        moved = [k for k in changed if OmegaConf.select(after, k) != OmegaConf.select(before, k)]
        default = override in AS_BEFORE or (script, override) == PLANNED
        assert bool(moved) != default, override
    assert {key: OmegaConf.select(after, key) for key in expected} == expected


def promised(script: str, override: str, config: DictConfig) -> dict[str, Any]:
    """key -> the value that an override promises."""
    key, _, value = override.partition("=")
    says = PROMISES.get(override, {}) if script == "train.py" else {}
    if re.fullmatch(r"\d+e-\d+", value):  # a number for Hydra, a text for YAML
        return {key: float(value)}
    if key == "logger":
        return says
    if isinstance(keys := yaml.safe_load(value), dict):
        return {f"{key}.{name}": wanted for name, wanted in keys.items()}
    group = OmegaConf.is_dict(OmegaConf.select(config, key))
    return {f"{key}.{VALUE.get(key, 'name')}" if group else key: yaml.safe_load(value)} | says


def test_the_readme_is_read_at_all():
    assert {override for _, overrides in COMMANDS for override in overrides} >= {
        *PROMISES,
        *AS_BEFORE,
    }
