r"""Runs of train.py with DeepSpeed, one after the other, each as two forked ranks.

    .venv-deepspeed/bin/python -m tests.nightly.deepspeed_ranks \
        '[[<config>, <folder>, <overrides>], ...]'

The environment is the one that `accelerate launch` sets, the rollouts are those of
tests/two_ranks.py; forking shares the imports, which take longer than the runs.
"""

import importlib
import json
import os
import sys
from pathlib import Path

from accelerate.commands import launch
from accelerate.utils.launch import prepare_deepspeed_cmd_env
from transformers import training_args

from tests import two_ranks


def main(runs: list[tuple[str, str, list[str]]]) -> None:
    backend = importlib.import_module("deepspeed.comm.torch")  # as an attribute it is torch itself
    backend.build_shm_op = lambda: None  # only gloo: its kernel for CPUs compiles for two minutes
    # DeepSpeed and gloo compute in bfloat16 on a CPU; transformers asks for a card.
    training_args.is_torch_bf16_gpu_available = lambda: True
    launch.deepspeed_launcher = lambda read: os.environ.update(prepare_deepspeed_cmd_env(read)[1])
    for config, folder, overrides in runs:
        arguments = ["--config_file", config, "--num_processes", "2", "train.py"]
        launch.launch_command(launch.launch_command_parser().parse_args(arguments))
        two_ranks.run(Path(folder), *overrides, fault=two_ranks.fixed_rollouts)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
