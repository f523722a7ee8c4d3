"""Floors and circles of imports (those inside functions too), the import rules, and private names
of TRL, transformers' Trainer and Unsloth in trl_adapter.py alone."""

import ast
import inspect
import re
import subprocess
from collections.abc import Iterator
from graphlib import TopologicalSorter
from os.path import dirname

import pytest
import trl
from transformers import PreTrainedConfig, PreTrainedModel, Trainer

from tests.conftest import ROOT

FLOORS = 8
MODULES_OF_RANKS = ("distributed", "PartialState", "gather_object")
VARIABLES_OF_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
NAMES = subprocess.getoutput(f"cd {ROOT} && git ls-files '*.py' ':!tests'").split()
SOURCES = {name: (ROOT / name).read_text() for name in NAMES}
MODULES = {re.sub(r"(/__init__)?\.py$", "", name).replace("/", "."): name for name in SOURCES}
GRAPH: dict[str, set[str]] = {name: set() for name in SOURCES}
for name, source in SOURCES.items():
    for node in ast.walk(ast.parse(source)):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            package = getattr(node, "module", None) or alias.name
            if getattr(node, "level", 0):  # relative: of its own folder
                package = ".".join(filter(None, [dirname(name).replace("/", "."), node.module]))
            file = MODULES.get(f"{package}.{alias.name}", MODULES.get(package, name))
            GRAPH[name] |= {file} - {name}
EDGES = [(a, b, dirname(a), dirname(b)) for a in GRAPH for b in GRAPH[a] if b != "pods/__init__.py"]


def names_read(source: str) -> Iterator[str]:
    """Imported names, with their modules, attributes and strings of a source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield from f"{getattr(node, 'module', None)}.{alias.name}".split(".")
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_floors_and_circles() -> None:
    floors: dict[str, int] = {}
    for name in TopologicalSorter(GRAPH).static_order():  # CycleError names the circle
        floors[name] = 1 + max((floors[other] for other in GRAPH[name]), default=0)
    assert {name: floor for name, floor in floors.items() if floor > FLOORS} == {}
    pairs = {(folder, target) for _, _, folder, target in EDGES if folder != target}
    TopologicalSorter({a: {d for c, d in pairs if c == a} for a, _ in pairs}).prepare()


def test_the_folder_of_the_config_imports_nothing_else() -> None:
    assert [edge for edge in EDGES if edge[2] == "pods/config" != edge[3]] == []


def test_nothing_below_imports_the_training() -> None:
    into = [edge for edge in EDGES if edge[3] == "pods/training" != edge[2]]
    assert [edge for edge in into if edge[2].startswith("pods")] == []


def test_evaluation_and_figures_do_not_import_each_other() -> None:
    rooms = {"pods/evaluation", "pods/figures"}
    assert [edge for edge in EDGES if {edge[2], edge[3]} == rooms] == []


def test_only_ranks_knows_of_other_processes() -> None:
    """No other file imports what joins processes or reads a variable of their launcher."""
    found = {
        file: {*MODULES_OF_RANKS, *VARIABLES_OF_RANKS} & set(names_read(source))
        for file, source in SOURCES.items()
    }
    found["pods/config/command.py"] -= {"LOCAL_RANK"}  # pods/config imports nothing of the project
    assert [file for file, names in found.items() if names] == ["pods/ranks.py"]


@pytest.fixture(scope="module")
def private_names() -> set[str]:
    """Attributes of TRL's and transformers' trainers, and what their methods assign."""
    names: set[str] = set()
    for kind in (trl.GRPOTrainer, Trainer):
        assigned = re.findall(r"\bself\.(\w+)", inspect.getsource(inspect.getmodule(kind)))
        names |= {name for name in (*dir(kind), *assigned) if re.match("_[a-z]", name)}
    assert {"_generate_and_score_completions", "_save_rng_state", "_last_loaded_step"} <= names
    return names


def test_the_private_names_of_the_adapter_exist(private_names):
    used = set(re.findall(r"\.(_[a-z]\w*)", SOURCES["pods/trl_adapter.py"]))
    of_models = {*dir(PreTrainedModel), *dir(PreTrainedConfig)}
    assert used - {"_earlier"} <= private_names | of_models  # that is its own


def test_private_names_stand_in_the_adapter_alone(private_names) -> None:
    found: dict[str, set[str]] = {}
    for file, source in SOURCES.items():
        used = set(re.findall(r"(?<!\bself)(?<!\bcls)\.(_[a-z]\w*)", source))
        private = {name for name in used if "unsloth_" in name} | used & private_names
        private |= {"_internal_call"} & set(re.findall(r"\w+", source))
        if private and file != "pods/trl_adapter.py":
            found[file] = private
    assert found == {}
