"""Every step behind a figure: the trainings with ten seeds, their evaluations, the plot.

    uv run scripts/reproduce.py figure=gsm8k_main dry_run=true   # print commands and GPU hours
    uv run scripts/reproduce.py figure=quickstart seeds=3        # minutes on a CPU
    uv run scripts/reproduce.py figure=gsm8k_main launcher=submitit_slurm \\
        'train=["hydra.launcher.partition=gpu","hydra.launcher.timeout_min=420"]'
    uv run scripts/reproduce.py figure=h100s                     # on a machine with 8 GPUs

The same command continues: it skips finished runs, resumes interrupted ones and keeps results.
"""

import importlib.util
import shlex
import subprocess
import sys

from pods.cli import CONFIG_DIR, RunFailed, UserError, command
from pods.recipes import ReproduceConfig, commands, estimate, plan


@command("reproduce", ReproduceConfig, CONFIG_DIR / "reproduce")
def main(config: ReproduceConfig) -> None:
    runs = plan(config)
    print("\n".join(estimate(config, runs)), file=sys.stderr)
    lines = commands(config, runs)
    if config.dry_run:
        print("\n".join(shlex.join(line) for line in lines))
        return
    plugin = "hydra_plugins.hydra_submitit_launcher"
    if config.launcher and importlib.util.find_spec(plugin) is None:
        raise UserError(f"launcher={config.launcher}: not installed; run uv sync --extra slurm")
    failed = [shlex.join(line) for line in lines if not succeeds(line)]
    if failed:
        raise RunFailed(f"failed: {'; '.join(failed)}; run the same command again to continue")


def succeeds(line: list[str]) -> bool:
    """Run a command. Exit code 3 counts as success: the command has named what it skipped."""
    print(f"$ {shlex.join(line)}", file=sys.stderr, flush=True)
    return subprocess.run(line).returncode in (0, 3)


if __name__ == "__main__":
    main()
