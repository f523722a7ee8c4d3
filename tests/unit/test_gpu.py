"""benchmarks/gpu.sh without a GPU, `uv` replaced by a program that prints its arguments."""

import os
import shutil
import subprocess

from pods.config import command
from tests.configs import compose
from tests.conftest import ROOT

UV = """#!/bin/sh
echo "$@"
case "$*" in *standby*) exit 1;; esac
"""


def test_every_part_composes_and_one_that_failed_is_tried_again(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "gpu.sh", tmp_path / "benchmarks")
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def called() -> list[str]:
        words = ["bash", "benchmarks/gpu.sh", "task=arithmetic"]
        done = subprocess.run(words, cwd=tmp_path, env=environment, text=True, capture_output=True)
        assert done.returncode == 1
        *lines, failed = done.stdout.splitlines()
        assert failed == "failed: speed-standby"
        return lines

    lines = called()
    assert len(lines) == 7
    for line in lines:
        _, script, *words = line.split()
        if script == "train.py":
            compose(*words)  # raises
        else:
            assert script == "evaluate_run.py"
            command.compose("evaluate", words, command.CONFIG_DIR / "evaluate")
    (again,) = called()
    assert "vllm.standby=true" in again
