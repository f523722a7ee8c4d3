"""Links of README and docs, and the paths that pyproject.toml gives to mutmut."""

import re
import tomllib

import pytest

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_relative_link_resolves(page):
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    relative = [target for target in targets if "://" not in target]
    assert [target for target in relative if not (page.parent / target).exists()] == []


def test_what_mutmut_is_told_to_mutate_and_to_run_exists():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    keys = ("source_paths", "only_mutate", "also_copy", "pytest_add_cli_args_test_selection")
    paths = [path for key in keys for path in settings[key]]
    assert [path for path in paths if not list(ROOT.glob(path))] == []
