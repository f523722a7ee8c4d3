"""Sizes, floors and circles of imports (those inside functions too), and the import rules."""

import ast
import re
import subprocess
from graphlib import TopologicalSorter
from os.path import dirname

from tests.conftest import ROOT

FLOORS, FILES, LINES, LINES_OF_A_FILE = 8, 90, 10_000, 300
NAMES = subprocess.getoutput(f"cd {ROOT} && git ls-files '*.py' ':!tests'").split()
SOURCES = {name: (ROOT / name).read_text() for name in NAMES}
MODULES = {re.sub(r"(/__init__)?\.py$", "", name).replace("/", "."): name for name in SOURCES}
GRAPH: dict[str, set[str]] = {name: set() for name in SOURCES}
for name, source in SOURCES.items():
    for node in ast.walk(ast.parse(source)):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            package = getattr(node, "module", None) or alias.name
            file = MODULES.get(f"{package}.{alias.name}", MODULES.get(package, name))
            GRAPH[name] |= {file} - {name}
EDGES = [(a, b, dirname(a), dirname(b)) for a in GRAPH for b in GRAPH[a] if b != "pods/__init__.py"]


def test_sizes_floors_and_circles() -> None:
    lines = {name: source.count("\n") for name, source in SOURCES.items()}
    assert {name: count for name, count in lines.items() if count > LINES_OF_A_FILE} == {}
    assert sum(lines.values()) <= LINES
    assert len(lines) <= FILES
    floors: dict[str, int] = {}
    for name in TopologicalSorter(GRAPH).static_order():  # CycleError names the circle
        floors[name] = 1 + max((floors[other] for other in GRAPH[name]), default=0)
    assert {name: floor for name, floor in floors.items() if floor > FLOORS} == {}
    pairs = {(folder, target) for _, _, folder, target in EDGES if folder != target}
    TopologicalSorter({a: {d for c, d in pairs if c == a} for a, _ in pairs}).prepare()


def test_the_import_rules() -> None:
    for *edge, folder, target in EDGES:
        assert folder != "pods/config" or target == folder, edge
        assert target != "pods/training" or folder == target or not folder.startswith("pods"), edge
        assert {folder, target} != {"pods/evaluation", "pods/figures"}, edge
    for home, words in (("seam", r"super\(\)\._[a-z]"), ("ranks", "gather_object|PartialState")):
        users = [name for name, source in SOURCES.items() if re.search(words, source)]
        assert users == [f"pods/{home}.py"], words
