"""The site builds from docs/, README.md and config comments, and its pages can be followed."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if not MKDOCS.is_file():
        pytest.skip("no .venv-docs: UV_PROJECT_ENVIRONMENT=.venv-docs uv sync --only-group docs")
    out = tmp_path_factory.mktemp("site")
    command = [str(MKDOCS), "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_page_is_in_the_menu(site):
    menu = (site / "index.html").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f'href="{page.stem}/"' in menu, page.name


def test_every_config_key_is_explained(site):
    text = re.sub(r"<[^>]+>", "", (site / "config" / "index.html").read_text())
    for file in (ROOT / "config").rglob("*.yaml"):
        assert file.name.startswith("_") or str(file.relative_to(ROOT / "config")) in text
    assert "gradients" in text
    assert "kept_per_prompt: 16" in text


def test_no_page_shows_a_path_of_this_machine(site):
    assert [page for page in site.rglob("*.html") if str(ROOT) in page.read_text()] == []


def test_nothing_comes_from_another_server(site):
    pages = [page.read_text() for page in site.rglob("*.html")]
    loaded = [
        link
        for page in pages
        for link in re.findall(r'(?:src|<link[^>]*href)="(https?://[^"]+)', page)
    ]
    assert loaded == []


def test_links_from_docs_to_the_repository_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in link and link != "config.md":
                assert (page.parent / link).exists(), f"{page.name}: {link}"
