"""README, docs and the notebook: links have targets, the README's example and the notebook run,
every command and `key=value` composes. Also the paths that pyproject.toml gives to mutmut."""

import importlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from omegaconf import OmegaConf
from pydantic import BaseModel, ValidationError

from pods.config import command
from pods.trainer import STATE
from tests import processes
from tests.configs import overridden
from tests.conftest import ROOT

NAMES = ("README.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("*.md"))]
README = PAGES[0].read_text()
CODE = re.compile(r"```.*?```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
TRL_SCRIPT = next(code for code in PYTHON.findall(README) if "PodsTrainer(" in code)
OURS = re.compile(r" train\.py|evaluate_run\.py|scripts/")
PROSE = [page for page in PAGES if page.stem in ("README", "commands", "cluster", "paper", "files")]
NOT_CONFIG = ("hydra", "CUDA_VISIBLE_DEVICES")
FOLDERS = {"chat": "checkpoint", "export": "checkpoint"}


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", page.read_text()), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_relative_link_has_a_target(page):
    links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", CODE.sub("", page.read_text()))
    assert [link for link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_the_trl_example_of_the_readme_runs_outside_the_repository(tmp_path):
    script = TRL_SCRIPT
    assert script.count("max_steps=50") == 1
    (tmp_path / "sums.py").write_text(script.replace("max_steps=50", "max_steps=10"))
    printed = processes.run(tmp_path, script=tmp_path / "sums.py").stdout
    first, last = map(float, re.findall(r"steps (0\.\d+), in the last ten (0\.\d+)", printed)[0])
    assert first == last  # they are the same ten
    state = json.loads((tmp_path / "sums" / "checkpoint-10" / STATE).read_text())
    assert len(state["history"]) == 80  # eight prompts a step


def test_the_paths_of_mutmut_exist():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    keys = ("source_paths", "only_mutate", "also_copy", "pytest_add_cli_args_test_selection")
    assert all(any(ROOT.glob(path)) for key in keys for path in settings[key])


def commands() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(script, overrides) of every command and of every `key=value` of the prose."""
    pages = [page for page in PAGES if page.stem != "extending"]  # its own test runs it
    blocks = [b for page in pages for b in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S)]
    lines = [line for line in "\n".join(blocks).splitlines() if OURS.search(line)]
    for page in PROSE:
        lines += re.findall(r"`([^`\n]+=[^`\n]+)`", page.read_text())
    for line in lines:
        line = re.sub(r"<[\w ]+>|\.\.\.", "x", line.partition(" #")[0].replace("\\|", ","))
        tokens = re.findall(r"(?:\{[^}]*\}|[^\s;])+", line)
        keys = [t for t in tokens if re.match(r"[a-z][\w./]*=.", t) and "://" not in t]
        default = "evaluate_run.py" if "split=validation" in keys else "train.py"
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


COMMANDS = sorted(set(commands()))


def test_the_pages_have_many_commands():
    assert len(COMMANDS) > 80


@pytest.mark.parametrize(("script", "overrides"), COMMANDS)
def test_every_command_and_override_of_the_pages_composes(script, overrides):
    name = script.removeprefix("scripts/").removesuffix(".py").removesuffix("_run")
    module = importlib.import_module(script.removesuffix(".py").replace("/", "."))
    own = command.CONFIG_DIR / FOLDERS.get(name, name)
    config = overridden(name, own if own.is_dir() else command.CONFIG_DIR, *overrides)
    schema = get_type_hints(module.main)["config"]
    assert unknown_keys(schema, OmegaConf.to_container(config)) == []


def unknown_keys(schema: type[BaseModel], values: dict[str, Any]) -> list[tuple[str | int, ...]]:
    """Keys that the schema lacks; values that it refuses are placeholders of the pages."""
    try:
        schema.model_validate(values)
    except ValidationError as error:
        return [p["loc"] for p in error.errors() if p["type"] == "extra_forbidden"]
    return []
