"""The notebook's source runs, and the notebooks are made from it."""

import json
import os
import subprocess

import pytest

from tests import processes
from tests.conftest import ROOT

FOLDER = ROOT / "notebooks"
JUPYTEXT = ROOT / ".venv-docs" / "bin" / "python"


@pytest.mark.slow
def test_the_source_runs_from_training_to_the_interval(tmp_path):
    def set_variables() -> None:
        os.environ.update(PODS_NOTEBOOK_SECONDS="2", PODS_NOTEBOOK_FOLDER=str(tmp_path / "w"))

    done = processes.run(tmp_path, script="notebooks/source.py", fault=set_variables, cwd=FOLDER)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("kept    ") == 16
    assert done.stdout.count("dropped ") == 16
    assert "my_rules.py:both_ends" in done.stdout
    assert "pods minus grpo: " in done.stdout
    metrics = (tmp_path / "w" / "own" / "metrics.jsonl").read_text().splitlines()
    assert "all/brevity_mean" in json.loads(metrics[0])


@pytest.mark.skipif(not JUPYTEXT.is_file(), reason="no .venv-docs (uv sync --only-group docs)")
def test_the_notebooks_are_made_from_the_source():
    code = "import json, make; print(json.dumps(make.notebooks()))"
    done = subprocess.run(
        [str(JUPYTEXT), "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True
    )
    for name, content in json.loads(done.stdout).items():
        assert json.loads((FOLDER / name).read_text()) == json.loads(content), (
            f"{name} differs from notebooks/source.py: run notebooks/make.py"
        )


def test_the_gpu_notebook_is_marked_untested():
    cells = [
        "".join(cell["source"]) for cell in json.loads((FOLDER / "gpu.ipynb").read_text())["cells"]
    ]
    settings = next(cell for cell in cells if "GPU = " in cell)
    assert "GPU = True" in settings
    assert "No GPU has run it yet" in settings
