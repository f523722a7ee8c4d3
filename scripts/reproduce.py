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
from pathlib import Path

from pods.config.command import CONFIG_DIR, command
from pods.config.errors import RunFailed, UserError
from pods.recipes import ReproduceConfig, commands, estimate, plan

PLUGIN = "hydra_plugins.hydra_submitit_launcher"


@command("reproduce", ReproduceConfig, CONFIG_DIR / "reproduce")
def main(config: ReproduceConfig) -> None:
    runs = plan(config)
    print("\n".join(estimate(config, runs)), file=sys.stderr)
    if config.launcher and not config.dry_run and importlib.util.find_spec(PLUGIN) is None:
        raise UserError(f"launcher={config.launcher}: not installed; run uv sync --extra slurm")
    failed, here = [], f"{Path.cwd()}/"
    for line in commands(config, runs):
        text = shlex.join(part.replace(here, "") for part in line)
        if config.dry_run:
            print(text)
            continue
        print(f"$ {text}", file=sys.stderr, flush=True)
        if subprocess.run(line).returncode not in (0, 3):  # 3: something was skipped
            failed.append(text)
            if not any(Path(config.output_dir, run.config.run).is_dir() for run in runs):
                break  # the first could not begin: neither could the others
    if failed:
        raise RunFailed(f"failed: {'; '.join(failed)}; run the same command again to continue")


if __name__ == "__main__":
    main()
