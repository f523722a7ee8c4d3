"""`uv run train.py trial=true ...`: three steps of the training that the other keys describe.

Prints versions and card, the first prompt (pods/tasks/prompts.py), then seconds by phase, peak
memory and the number of steps within the budget. Nothing stays on the disk.
"""

import contextlib
import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from pods import ranks
from pods.clock import STEP_PHASES
from pods.config.keys import Logger, TrainConfig

STEPS = 3  # the first compiles, so the seconds leave it out


def run(config: TrainConfig, train: Callable[[TrainConfig], object]) -> None:
    """Call `train` with the config of a short run in a temporary folder, and report it."""
    from pods.runs.folder import provenance, read_metrics  # imports torch

    facts = provenance()
    if ranks.is_main():
        print(" ".join(f"{name} {version}" for name, version in facts["versions"].items()))
        print(facts["gpu"] or f"{facts['cpu_count']} CPU cores, no CUDA device", flush=True)
    parent = Path(config.output_dir)  # the run's disk; one folder for all ranks
    folder = parent / f".trial-{os.environ.get('MASTER_PORT') or os.getpid()}"
    try:
        train(short(config, folder))
        if ranks.is_main():
            print(report(config, read_metrics(folder / "trial" / "metrics.jsonl")))
    finally:
        if ranks.is_main():
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: it was there before
                parent.rmdir()


def short(config: TrainConfig, folder: Path) -> TrainConfig:
    """The same training with a warm-up and three steps, without checkpoints between them."""
    trial = copy.deepcopy(config)
    trial.run, trial.output_dir, trial.resume = "trial", str(folder), "never"
    trial.max_steps = STEPS * config.updates_per_generation
    trial.budget.wall_seconds = trial.checkpoint.every_seconds = trial.checkpoint.every_steps = None
    trial.evaluation.every_seconds = trial.evaluation.stop_at = None
    trial.backend.warmup = True  # at the longest lengths
    trial.logger = Logger()
    return trial


def report(config: TrainConfig, steps: list[dict[str, Any]]) -> str:
    """Mean seconds by phase without the first step, the greatest peaks (GiB) and engine gaps, and
    how many optimiser steps the budget holds."""
    seconds = {name: mean(step[f"seconds/{name}"] for step in steps[1:]) for name in STEP_PHASES}
    phases = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
    lines = [f"seconds a step: {phases} (of {sum(seconds.values()):.2f}, without the first step)"]
    for title, prefix in (("peak memory, GiB", "peak_memory_gib/"), ("engine", "engine/")):
        greatest: dict[str, float] = {}
        for step in steps:
            for name in (name for name in step if name.startswith(prefix)):
                greatest[name] = max(step[name], greatest.get(name, step[name]))
        values = [f"{name.removeprefix(prefix)} {value:.3g}" for name, value in greatest.items()]
        lines += [f"{title}: {', '.join(values)}"] if values else []
    if limit := config.budget.train_seconds:
        count = config.updates_per_generation * limit / sum(seconds.values())
        lines.append(f"budget: about {count:.0f} steps in {limit:.0f} s of training")
    if config.max_steps:
        needed = config.max_steps * sum(seconds.values()) / config.updates_per_generation
        lines.append(f"budget: {config.max_steps} steps in about {needed:.0f} s of training")
    return "\n".join(lines)
