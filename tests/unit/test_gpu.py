"""benchmarks/gpu.sh without a GPU, `uv` replaced by a program that prints its arguments."""

import os
import shutil
import subprocess

import pytest

from pods.config import command
from tests.configs import compose
from tests.conftest import ROOT

UV = """#!/bin/sh
echo "$@"
case "$*" in *standby*) exit 1;; esac
"""


@pytest.fixture
def called(tmp_path):
    """Runs the script; its exit code and lines."""
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "gpu.sh", tmp_path / "benchmarks")
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def call(*words: str) -> tuple[int, list[str]]:
        command = ["bash", "benchmarks/gpu.sh", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, text=True, capture_output=True
        )
        return done.returncode, done.stdout.splitlines()

    return call


def check_composes(line: str) -> None:
    """Raises if the command of this line has a wrong key."""
    _, _, script, *words = line.split()
    if script == "train.py":
        compose(*words)
    else:
        assert script == "evaluate_run.py"
        command.compose("evaluate", words, command.CONFIG_DIR / "evaluate")


def test_every_part_composes_and_one_that_failed_is_tried_again(called):
    code, (*lines, failed) = called("task=arithmetic")
    assert (code, len(lines), failed) == (1, 8, "failed: speed-standby")
    for line in lines:
        check_composes(line)
    code, (again, _) = called("task=arithmetic")
    assert code == 1
    assert "vllm.standby=true" in again


def test_the_ten_minutes_compose(called, tmp_path):
    code, lines = called("ten", "sampling.max_completion_length=64")
    assert code == 0
    trials = [line for line in lines if line.startswith("run python train.py")]
    assert len(trials) == 5
    base = tmp_path / "checkpoints/gpu/base"
    base.mkdir()
    for line in trials:
        check_composes(line.replace("model.path=checkpoints", f"model.path={tmp_path}/checkpoints"))
    code, lines = called("ten")
    assert (code, lines) == (0, [])  # all are done
    assert not base.exists()  # 6 GB
