"""The real launcher on the quickstart, and the launcher's own reading of config/accelerate/."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser

from pods.runs import checkpoints
from pods.runs.folder import read_metrics
from tests.conftest import ROOT

CONFIGS = sorted((ROOT / "config" / "accelerate").glob("*.yaml"))


@pytest.mark.slow
def test_a_killed_rank_ends_a_launched_run(tmp_path):
    launch = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    command = [
        *launch, "--config_file", str(ROOT / "config" / "accelerate" / "cpu.yaml"),
        "--num_processes", "2", str(ROOT / "train.py"), f"output_dir={tmp_path}", "run=r",
        "prompts_per_step=2",
        "rollouts_per_prompt=8", "kept_per_prompt=4", "sampling.max_completion_length=8",
        "budget.train_seconds=null", "max_steps=100000", "checkpoint.every_steps=2",
    ]  # fmt: skip
    with open(tmp_path / "output", "w") as output:
        launcher = subprocess.Popen(command, stdout=output, stderr=output, cwd=tmp_path)
    try:
        wait_for_checkpoints(tmp_path / "r", launcher)
        os.kill(rank_of(launcher.pid, "1"), signal.SIGKILL)
        assert launcher.wait(timeout=300) != 0
    finally:
        if launcher.poll() is None:
            for process in (*psutil.Process(launcher.pid).children(), launcher):
                process.kill()
    said = (tmp_path / "output").read_text()
    assert "another process of the run ended; last checkpoint: " in said
    last, skipped = checkpoints.newest_intact(tmp_path / "r")
    assert last.step >= 2
    assert skipped == []
    steps = [line["step"] for line in read_metrics(tmp_path / "r" / "metrics.jsonl")]
    assert steps == list(range(1, len(steps) + 1))


def wait_for_checkpoints(folder: Path, launcher: subprocess.Popen) -> None:
    deadline = time.monotonic() + 500
    while not checkpoints.find(folder):
        assert launcher.poll() is None, (folder.parent / "output").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def rank_of(launcher: int, rank: str) -> int:
    children = psutil.Process(launcher).children()
    return next(child.pid for child in children if child.environ().get("RANK") == rank)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_launcher_reads_every_config(path):
    config = load_config_from_file(str(path))
    arguments = ["--config_file", str(path), "--num_processes", "2", "train.py", "seed=1"]
    read, _, _ = _validate_launch_command(launch_command_parser().parse_args(arguments))
    assert (read.num_processes, read.main_process_port) == (2, 0)
    assert read.use_cpu is (path.stem == "cpu")
    assert read.use_deepspeed is path.stem.startswith("zero")
    assert read.multi_gpu is not read.use_deepspeed  # else accelerate starts one process
    assert config.mixed_precision == "no"  # train.py settles it: a float32 model may come
    if read.use_deepspeed:
        assert str(read.zero_stage) == path.stem.removeprefix("zero")
