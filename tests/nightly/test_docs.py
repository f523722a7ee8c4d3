"""The notebook runs."""

import json
import os
import subprocess
from functools import partial

from tests import processes
from tests.conftest import ROOT


def test_the_notebook_runs_from_training_to_the_interval(tmp_path):
    cells = json.loads((ROOT / "notebooks" / "quickstart.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script = tmp_path / "cells.py"
    script.write_text("\n\n".join(code))

    def in_small() -> None:
        os.environ.update(PODS_NOTEBOOK_SECONDS="0.5", PODS_NOTEBOOK_FOLDER=str(tmp_path / "w"))
        subprocess.run = partial(processes.instead_of_run, tmp_path, subprocess.run)

    cwd = ROOT / "notebooks"
    shown = processes.run(tmp_path, script=script, fault=in_small, cwd=cwd).stdout
    assert shown.count("kept    ") == 4
    assert shown.count("dropped ") == 4
    assert "my_rules.py:both_ends" in shown
    assert "pods minus grpo: " in shown
    metrics = (tmp_path / "w" / "own" / "metrics.jsonl").read_text().splitlines()
    assert "all/brevity_mean" in json.loads(metrics[0])
