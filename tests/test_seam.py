"""Private names of TRL, transformers' Trainer and Unsloth stand in pods/seam.py alone."""

import ast
from pathlib import Path

import trl
from transformers import Trainer

from tests.conftest import ROOT

SOURCES = [
    path
    for pattern in ("*.py", "pods/**/*.py", "rewards/*.py", "scripts/*.py")
    for path in ROOT.glob(pattern)
]


def private_names() -> set[str]:
    """Every private attribute of the two trainers: methods, and what their methods assign."""
    names = {name for kind in (trl.GRPOTrainer, Trainer) for name in dir(kind)}
    for kind in (trl.GRPOTrainer, Trainer):
        source = ast.parse(Path(__import__(kind.__module__, fromlist="x").__file__).read_text())
        names |= {
            node.attr
            for node in ast.walk(source)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def uses(path: Path, names: set[str]) -> list[str]:
    """Private names that a file uses of objects other than self."""
    used = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and (node.attr in names or "unsloth_" in node.attr):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            used += [] if own else [node.attr]
        if isinstance(node, ast.keyword) and node.arg == "_internal_call":
            used.append(node.arg)
    return [name for name in used if name.startswith("_")]


def test_no_other_file_holds_a_private_name():
    names = private_names()
    assert {"_generate_and_score_completions", "_save_rng_state", "_last_loaded_step"} <= names
    assert len(SOURCES) > 60
    others = {path.name: uses(path, names) for path in SOURCES if path.name != "seam.py"}
    assert {name: used for name, used in others.items() if used} == {}
    assert len(uses(ROOT / "pods" / "seam.py", names)) > 5


def test_the_names_that_the_seam_uses_exist():
    tree = ast.parse((ROOT / "pods" / "seam.py").read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    private = {name for name in used if name.startswith("_") and name[1] != "_"}
    assert private - {"_handed", "_earlier"} <= private_names()  # its own
