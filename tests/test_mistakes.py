"""tests/mistakes.txt: typical mistakes, each answered by one line that begins with the key, before
any file is written. A dozen of the lines are there whole.

Types and bounds: tests/test_config.py; rules across keys: tests/test_check.py.
"""

import shlex
import sys
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

from tests.conftest import ROOT
from tests.fake_run import make_run
from tests.figures import refused


def transcript() -> list[tuple[str, str]]:
    """(command, answer); an answer that ends with ... is cut."""
    text = (ROOT / "tests" / "mistakes.txt").read_text().strip()
    parts = [part.split("\n", 1) for part in text.removeprefix("$ ").split("\n$ ")]
    return [(command, " ".join(answer.split())) for command, answer in parts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with the run checkpoints/old; no mistake may change it."""
    folder = tmp_path_factory.mktemp("beside")
    make_run(folder / "checkpoints", "old", steps=())
    lines = ["def short(completions): return [1 / 0]", "def one(completions): return [1.0]"]
    (folder / "my.py").write_text("\n".join(lines))
    (folder / "q.jsonl").write_text('{"q": "1+1", "a": "2"}')
    return folder


@pytest.mark.parametrize(("command", "answer"), transcript(), ids=[c for c, _ in transcript()])
def test_a_mistake_is_one_line(folder, monkeypatch, capsys, command, answer):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # my.py's would count as a file
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)  # as in a new process
    script, *arguments = shlex.split(command)
    path = script if (ROOT / script).is_file() else f"scripts/{script}"
    line = refused(capsys, path, *arguments).removeprefix(f"{Path(script).name}: ")
    assert line.startswith(answer[:-3]) if answer.endswith("...") else line == answer
