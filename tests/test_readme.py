"""Every command and `key=value` of README and docs composes, and each override sets its key."""

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from pods.config import command
from tests.conftest import ROOT

# Named as the default, or for a command whose experiment sets them already; all others change keys.
AS_BEFORE = {
    "experiment=quickstart", "algorithm=pods", "rewards=v2", "run=null", "repeats=5",
    "model.load_in_4bit=false", "optimizer.learning_rate=1e-3", "rollouts_per_prompt=32",
    "experiment=gsm8k_qwen",  # of scripts/plan.py
}  # fmt: skip
# tests/test_extending.py runs the commands of docs/extending.md.
PAGES = [ROOT / "README.md", *(p for p in (ROOT / "docs").glob("*.md") if p.stem != "extending")]
PROSE = [page for page in PAGES if page.stem in ("README", "commands", "cluster", "paper", "files")]
NOT_CONFIG = ("hydra", "CUDA_VISIBLE_DEVICES")
FOLDERS = {"chat": "checkpoint", "export": "checkpoint", "plan": "planning"}
VALUE = {"rewards": "version"}  # the key of a group that holds its name, where it is not `name`


def commands() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(script, overrides) of every command and of every `key=value` of the prose."""
    blocks = [b for page in PAGES for b in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S)]
    ours = re.compile(r" train\.py|evaluate_run\.py|scripts/")
    lines = [line for line in "\n".join(blocks).splitlines() if ours.search(line)]
    for page in PROSE:
        lines += re.findall(r"`([^`\n]+=[^`\n]+)`", page.read_text())
    for line in lines:
        line = re.sub(r"<[\w ]+>|\.\.\.", "x", line.partition(" #")[0].replace("\\|", ","))
        tokens = re.findall(r"(?:\{[^}]*\}|[^\s;])+", line)
        keys = [t for t in tokens if re.match(r"[a-z][\w./]*=.", t) and "://" not in t]
        default = "evaluate_run.py" if "select_on=validation" in keys else "train.py"
        scripts = [t for t in tokens if t.endswith(".py") and not t.startswith("benchmarks")]
        columns = [alternatives(key) for key in keys if not key.startswith(NOT_CONFIG)]
        for i in range(max(map(len, columns), default=0)):
            overrides = tuple(column[min(i, len(column) - 1)] for column in columns)
            yield (*scripts, default)[0], overrides


def alternatives(override: str) -> list[str]:
    """algorithm=a,b -> algorithm=a and algorithm=b; of several seeds the first."""
    key, _, values = override.partition("=")
    names = [values] if values[0] in "[{" else values.split(",")
    return [f"{key}={name}" for name in (names[:1] if key == "seed" else names)]


@cache
def composed(script: str, overrides: tuple[str, ...] = ()) -> DictConfig:
    """The config of a command, which has all of its keys; values are not resolved."""
    name = script.removeprefix("scripts/").removesuffix(".py").removesuffix("_run")
    module = importlib.import_module(script.removesuffix(".py").replace("/", "."))
    own = command.CONFIG_DIR / FOLDERS.get(name, name)
    config = command.compose(name, [*overrides], own if own.is_dir() else command.CONFIG_DIR)
    try:
        get_type_hints(module.main)["config"].model_validate(OmegaConf.to_container(config))
    except ValidationError as error:
        unknown = [p["loc"] for p in error.errors() if p["type"] == "extra_forbidden"]
        assert not unknown, (script, overrides)
    return config


def promised(override: str, config: DictConfig) -> dict[str, Any]:
    """key -> the value that an override promises."""
    key, _, value = override.partition("=")
    if re.fullmatch(r"\d+e-\d+", value):  # a number for Hydra, a text for YAML
        return {key: float(value)}
    if key == "logger":
        return {f"logger.{name}": config.logger[name] for name in value.strip("[]").split(",")}
    if isinstance(keys := yaml.safe_load(value), dict):
        return {f"{key}.{name}": wanted for name, wanted in keys.items()}
    group = OmegaConf.is_dict(OmegaConf.select(config, key))
    return {f"{key}.{VALUE.get(key, 'name')}" if group else key: keys}


def test_every_override_of_the_pages_sets_its_key():
    wrong, idle = [], set()
    for script, overrides in sorted(set(commands())):
        after, before = composed(script, overrides), composed(script)
        expected: dict[str, Any] = {}
        for override in overrides:
            values = promised(override, after)
            expected |= values  # a later override wins
            if all(OmegaConf.select(after, k) == OmegaConf.select(before, k) for k in values):
                idle.add(override)
        if {key: OmegaConf.select(after, key) for key in expected} != expected:
            wrong.append((script, overrides))
    assert wrong == []
    assert idle == AS_BEFORE
