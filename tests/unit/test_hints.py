"""What the messages of the code tell a user to type: keys and values that a command takes, commands
and extras that exist."""

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields

import pytest

from pods import PodsConfig
from pods.config.command import typed
from pods.config.keys import Section, TrainConfig, keys
from tests.configs import composed
from tests.conftest import ROOT

SCRIPTS = [
    "evaluate_run",
    *(f"scripts.{path.stem}" for path in ROOT.glob("scripts/*.py")),
]
KEY = re.compile(r"(?<![\w.{<=/-])((?:[a-z_]+\.)*[a-z_]+)=")
REMEDY = re.compile(r"\b(?:set|or|use|with) ((?:[a-z_]+\.)*[a-z_]+)=(\[[^]]*\]|[\w.]*\w)")
# Arguments in Python, columns of the user's data, and a name in a dictionary.
PYTHON = {
    "_kwargs",
    "args",
    "key",
    "logprobs",
    "m",
    "n",
    "n_gpu",
    "reward_funcs",
    "sampler",
}
OTHERS = {*PYTHON, "is_trainable", "correct", "rewards.weights.correctness"}


def messages(source: str) -> Iterator[str]:
    """Sentences in the strings of a source, without docstrings; <> is put for what they format."""
    nodes = [*ast.walk(ast.parse(source))]
    skipped: set[ast.AST] = set()  # docstrings, and the parts of an f-string
    for node in nodes:
        if isinstance(node, ast.Expr):
            skipped.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            skipped |= {part for part in ast.walk(node) if part is not node}
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part.value if isinstance(part, ast.Constant) else "<>" for part in parts]
        if node not in skipped and isinstance(texts[0], str) and " " in "".join(texts):
            yield "".join(texts)


PATHS = [
    path for pattern in ("*.py", "pods/**/*.py", "scripts/*.py") for path in ROOT.glob(pattern)
]
TEXT = "\n".join(message for path in PATHS for message in messages(path.read_text()))


def schemas() -> Iterator[type[Section]]:
    """The keys of each command."""
    yield TrainConfig
    for name in SCRIPTS:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and issubclass(value, Section):
                yield value


def test_every_key_in_a_message_is_one():
    known = {key for schema in schemas() for key in keys(schema)}
    known |= {key.partition(".")[0] for key in known} | {field.name for field in fields(PodsConfig)}
    unknown = {key for key in KEY.findall(TEXT) if not key.startswith("trl.")} - known - OTHERS
    assert unknown == set()


TYPED = sorted(
    {(k, v) for k, v in REMEDY.findall(TEXT) if k.partition(".")[0] in TrainConfig.model_fields}
)


@pytest.mark.parametrize(("key", "value"), TYPED)
def test_a_remedy_can_be_typed(key, value):
    typed(TrainConfig, composed(f"{key}={value}"))


def test_every_command_in_a_message_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*re.findall(r"--extra ([\w-]+)", TEXT)} <= {*project["optional-dependencies"]}
    scripts = re.findall(r"uv run ([\w/]+\.py)", TEXT)
    assert scripts
    assert all((ROOT / path).is_file() for path in scripts)
