"""Two forked ranks of a command with DeepSpeed, train.py with the rollouts of tests/two_ranks.py.

    .venv-deepspeed/bin/python -m tests.deepspeed_ranks <config> <folder> <script> <overrides>

The environment is the one that `accelerate launch` sets; forking shares the imports, which take
longer than the runs. After `--` come the overrides of a further run.
"""

import os
import sys
from itertools import groupby
from pathlib import Path

import deepspeed  # noqa: F401
from accelerate.commands import launch
from accelerate.utils.launch import prepare_deepspeed_cmd_env

from tests import two_ranks


def main(config: str, folder: Path, script: str, *overrides: str) -> None:
    launch.deepspeed_launcher = lambda read: os.environ.update(prepare_deepspeed_cmd_env(read)[1])
    arguments = ["--config_file", config, "--num_processes", "2", script]
    launch.launch_command(launch.launch_command_parser().parse_args(arguments))
    fault = two_ranks.fixed_rollouts if script == "train.py" else None
    for further, settings in groupby(overrides, lambda override: override == "--"):
        for process in (
            () if further else two_ranks.run(folder, *settings, script=script, fault=fault)
        ):
            if process.returncode:
                sys.exit(process.stdout + process.stderr)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
