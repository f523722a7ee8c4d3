"""Everything behind a figure: its trainings with ten seeds, their evaluation, the plot.

    uv run scripts/reproduce.py figure=gsm8k_main dry_run=true   # commands, hours, nothing run
    uv run scripts/reproduce.py figure=quickstart seeds=3        # minutes on a CPU
    uv run scripts/reproduce.py figure=gsm8k_main launcher=submitit_slurm \\
        'train=["hydra.launcher.partition=gpu","hydra.launcher.timeout_min=420"]'
    uv run scripts/reproduce.py figure=h100s                     # on a machine with 8 GPUs

The same command continues: finished runs are left out, interrupted ones resume, results that are
there stay. Departs from the paper's scripts: each of the ten runs has a seed of its own.
"""

import importlib.util
import shlex
import subprocess
import sys

from pods.cli import CONFIG_DIR, RunFailed, UserError, command
from pods.policy import ROOT
from pods.recipes import ReproduceConfig, Run, plan, recipe_of, seconds_per_step

LAUNCHERS = ("submitit_slurm", "submitit_local")


@command("reproduce", ReproduceConfig, CONFIG_DIR / "reproduce")
def main(config: ReproduceConfig) -> None:
    if config.launcher not in (None, *LAUNCHERS):
        raise UserError(
            f"launcher={config.launcher}: must be null or one of {', '.join(LAUNCHERS)}"
        )
    runs = plan(config)
    describe(config, runs)
    trainings = training_commands(config, [run for run in runs if not run.finished])
    evaluations = [evaluation_command(config, run) for run in runs]
    plot = script("scripts/plot.py", f"figure={config.figure}", f"results_dir={config.results_dir}",
                  f"out_dir={config.out_dir}", *config.plot)  # fmt: skip
    if config.dry_run:
        for line in (*trainings, *evaluations, plot):
            print(shlex.join(line))
        return
    if (
        config.launcher
        and importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is None
    ):
        raise UserError(f"launcher={config.launcher}: not installed; run uv sync --extra slurm")
    failed = [line for line in (*trainings, *evaluations) if not run_one(line)]
    if not run_one(plot) or failed:
        lines = "; ".join(shlex.join(line) for line in failed) or shlex.join(plot)
        raise RunFailed(f"failed: {lines}; run the same command again to go on")


def script(path: str, *overrides: str) -> list[str]:
    return [sys.executable, str(ROOT / path), *overrides]


def training(launch: str | None, *overrides: str) -> list[str]:
    """train.py as one process, or as those of config/accelerate/<launch>.yaml."""
    if launch is None:
        return script("train.py", *overrides)
    file = CONFIG_DIR / "accelerate" / f"{launch}.yaml"
    return [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch",
            "--config_file", str(file), str(ROOT / "train.py"), *overrides]  # fmt: skip


def training_commands(config: ReproduceConfig, runs: list[Run]) -> list[list[str]]:
    """One command a run; with a launcher one sweep an arm, over the seeds that are missing."""
    if config.launcher is None:
        launch = recipe_of(config).launch
        return [training(launch, *run.overrides, f"seed={run.seed}") for run in runs]
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run.arm, []).append(run)
    return [
        script("train.py", "-m", f"hydra/launcher={config.launcher}", *group[0].overrides,
               f"seed={','.join(str(run.seed) for run in group)}")
        for group in arms.values()
    ]  # fmt: skip


def evaluation_command(config: ReproduceConfig, run: Run) -> list[str]:
    own = [*recipe_of(config).evaluate, *config.evaluate]
    return script("evaluate_run.py", f"run={run.name}", f"output_dir={config.output_dir}",
                  f"results_dir={config.results_dir}", *own)  # fmt: skip


def describe(config: ReproduceConfig, runs: list[Run]) -> None:
    """What is there and what the rest costs, arm by arm, on stderr."""
    speeds = seconds_per_step(config, runs)
    total = 0.0
    for arm in dict.fromkeys(run.arm for run in runs):
        own = [run for run in runs if run.arm == arm]
        speed, origin = speeds.get(arm, (None, ""))
        left = sum(run.seconds_left(speed) for run in own)
        total += left
        done = sum(run.finished for run in own)
        pace = f", {speed:.2f} s a step ({origin})" if speed else ""
        print(
            f"{arm}: {done} of {len(own)} runs done, {left / 3600:.2f} h of training left{pace}",
            file=sys.stderr,
        )
    print(f"total: {total / 3600:.2f} h of training left, evaluation not counted", file=sys.stderr)


def run_one(line: list[str]) -> bool:
    """Run one command, its output as it comes; False where it failed. Exit code 3 is a success
    that left something out, and says so itself."""
    print(f"$ {shlex.join(line)}", file=sys.stderr, flush=True)
    return subprocess.run(line).returncode in (0, 3)


if __name__ == "__main__":
    main()
