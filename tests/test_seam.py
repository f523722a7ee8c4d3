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


def used(path: Path) -> set[str]:
    """Private names that a file uses of objects other than self."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    others = [node for node in nodes if isinstance(node, ast.Attribute)]
    others = [n for n in others if getattr(n.value, "id", "") not in ("self", "cls")]
    names = {node.attr for node in others} | {getattr(node, "arg", None) for node in nodes}
    return {name for name in names - {None} if name.startswith("_") and name[1:2] != "_"}


def test_private_names_stand_in_the_seam_alone_and_exist():
    names = private_names()
    assert {"_generate_and_score_completions", "_save_rng_state", "_last_loaded_step"} <= names
    others = {path.name: used(path) for path in SOURCES if path.name != "seam.py"}
    found = {file: own & names | {n for n in own if "unsloth_" in n or n == "_internal_call"}
             for file, own in others.items()}  # fmt: skip
    assert {file: own for file, own in found.items() if own} == {}
    tree = ast.parse((ROOT / "pods" / "seam.py").read_text())
    private = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    private = {name for name in private if name.startswith("_") and name[1] != "_"}
    assert private - {"_handed", "_earlier"} <= names  # its own
