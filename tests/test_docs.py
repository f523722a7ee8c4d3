"""README and docs: links have targets, and their Python is the code of the repository, or runs.

Also the paths that pyproject.toml gives to mutmut.
"""

import inspect
import json
import re
import tomllib
from pathlib import Path

import pytest

from pods.algorithms import ALGORITHMS
from pods.trainer import STATE
from tests import processes
from tests.configs import compose
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"```.*?```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", page.read_text()), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_relative_link_has_a_target(page: Path):
    links = re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", page.read_text()))
    for link in links:
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_page_of_algorithms_shows_the_code_that_runs():
    page = (ROOT / "docs" / "algorithms.md").read_text()
    sections = re.findall(r"^## (\w+)\n.*?```python\n(.*?)```", page, flags=re.M | re.S)
    assert dict(sections) == {name: inspect.getsource(f) for name, f in ALGORITHMS.items()}


def test_the_readme_begins_with_the_method():
    first = PYTHON.findall((ROOT / "README.md").read_text())[0]
    assert first == inspect.getsource(ALGORITHMS["pods"])


def test_the_trl_example_of_the_readme_runs_outside_the_repository(tmp_path: Path):
    script = PYTHON.findall((ROOT / "README.md").read_text())[1]
    policy = ROOT / compose("experiment=quickstart").model.path
    for text, small in (
        ('"Qwen/Qwen2.5-0.5B"', repr(str(policy))),
        ("max_steps=50", "max_steps=2"),
    ):
        assert script.count(text) == 1
        script = script.replace(text, small)
    (tmp_path / "sums.py").write_text(script)
    ended = processes.run(tmp_path, script=tmp_path / "sums.py")
    assert ended.returncode == 0, ended.stderr
    state = json.loads((tmp_path / "sums" / "checkpoint-2" / STATE).read_text())
    assert len(state["history"]) == 2  # one prompt a step


def test_the_paths_of_mutmut_exist():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    keys = ("source_paths", "only_mutate", "also_copy", "pytest_add_cli_args_test_selection")
    assert all(any(ROOT.glob(path)) for key in keys for path in settings[key])
