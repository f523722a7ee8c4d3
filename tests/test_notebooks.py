"""The notebook's code cells run, from training to the interval."""

import json
import os

import pytest

from tests import processes
from tests.conftest import ROOT


@pytest.mark.slow
def test_the_notebook_runs_from_training_to_the_interval(tmp_path):
    cells = json.loads((ROOT / "notebooks" / "quickstart.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script = tmp_path / "cells.py"
    script.write_text("\n\n".join(code))

    def set_variables() -> None:
        os.environ.update(PODS_NOTEBOOK_SECONDS="2", PODS_NOTEBOOK_FOLDER=str(tmp_path / "w"))

    cwd = ROOT / "notebooks"
    ended = processes.run(tmp_path, script=script, fault=set_variables, cwd=cwd)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("kept    ") == 4
    assert ended.stdout.count("dropped ") == 4
    assert "my_rules.py:both_ends" in ended.stdout
    assert "pods minus grpo: " in ended.stdout
    metrics = (tmp_path / "w" / "own" / "metrics.jsonl").read_text().splitlines()
    assert "all/brevity_mean" in json.loads(metrics[0])
