"""The real launcher on the quickstart, and the launcher's own reading of config/accelerate/."""

import subprocess
import sys

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser

from pods.runs import checkpoints
from tests.conftest import ROOT

CONFIGS = sorted((ROOT / "config" / "accelerate").glob("*.yaml"))


@pytest.mark.slow
def test_the_launcher_starts_two_processes_of_one_run(tmp_path):
    command = [
        sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--config_file",
        str(ROOT / "config" / "accelerate" / "cpu.yaml"), "--num_processes", "2",
        str(ROOT / "train.py"), f"output_dir={tmp_path}", "run=r", "prompts_per_step=2",
        "rollouts_per_prompt=8", "kept_per_prompt=4", "sampling.max_completion_length=8",
        "budget.train_seconds=null", "max_steps=2",
    ]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, timeout=500)
    checkpoint, skipped = checkpoints.newest_intact(tmp_path / "r")
    assert (checkpoint.step, checkpoint.meta["ranks"], skipped) == (2, 2, [])


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
