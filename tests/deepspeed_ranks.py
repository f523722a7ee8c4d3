"""Two forked ranks of train.py with DeepSpeed and the rollouts of tests/ranks.py.

    .venv-deepspeed/bin/python -m tests.deepspeed_ranks <config> <folder> <steps,...> <overrides>

The environment is the one that `accelerate launch` sets; forking shares the imports, which take
longer than the runs. Several numbers of steps: a run to each, going on from the one before.
"""

import os
import sys
from pathlib import Path

import deepspeed  # noqa: F401
from accelerate.commands import launch
from accelerate.utils.launch import prepare_deepspeed_cmd_env

from tests import ranks


def main(config: str, folder: Path, steps: str, *overrides: str) -> None:
    launch.deepspeed_launcher = lambda read: os.environ.update(prepare_deepspeed_cmd_env(read)[1])
    arguments = ["--config_file", config, "--num_processes", "2", "train.py"]
    launch.launch_command(launch.launch_command_parser().parse_args(arguments))
    for count in steps.split(","):
        settings = [*overrides, f"output_dir={folder}", f"max_steps={count}"]
        for process in ranks.run(folder, *settings, fault=ranks.fixed_rollouts):
            if process.returncode:
                sys.exit(process.stderr)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
