"""From a figure to its commands: trainings by arm and seed, their evaluations, the plot.

The recipes are in config/reproduce/reproduce.yaml. Departs from the paper's scripts: each of the
ten runs of an arm has its own seed.
    uv run scripts/reproduce.py figure=<name> dry_run=true
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from pods.check import check, settle
from pods.checkpoints import find
from pods.cli import CONFIG_DIR, UserError, compose, typed
from pods.config import TrainConfig

LAUNCHERS = ("submitit_slurm", "submitit_local")


@dataclass
class Recipe:
    experiment: str = MISSING
    arms: dict[str, list[str]] = MISSING
    evaluate: list[str] = field(default_factory=list)
    launch: str | None = None


@dataclass
class ReproduceConfig:
    figure: str = MISSING
    seeds: int = MISSING
    dry_run: bool = MISSING
    launcher: str | None = MISSING
    train: list[str] = MISSING
    evaluate: list[str] = MISSING
    plot: list[str] = MISSING
    output_dir: str = MISSING
    results_dir: str = MISSING
    out_dir: str = MISSING
    recipes: dict[str, Recipe] = MISSING


@dataclass
class Run:
    """One training of a figure, and how far its newest checkpoint is."""

    arm: str
    overrides: list[str]  # of train.py, without the seed
    seed: int
    config: TrainConfig
    seconds_done: float
    steps_done: int

    @property
    def finished(self) -> bool:
        """Whether train.py would stop at once."""
        return self.seconds_left == 0

    @property
    def seconds_left(self) -> float:
        """Training time left, s: to the time budget, or to max_steps where that comes first."""
        seconds, steps = self.config.budget.train_seconds, self.config.max_steps
        left = math.inf if seconds is None else max(0.0, seconds - self.seconds_done)
        if steps is None or not self.steps_done:
            return left
        return min(left, max(0, steps - self.steps_done) * self.seconds_done / self.steps_done)


def recipe_of(config: ReproduceConfig) -> Recipe:
    """The figure's recipe. Raises UserError where it is unknown or cannot be run as asked."""
    if config.seeds < 1:
        raise UserError(f"seeds={config.seeds}: must be 1 or more")
    if config.figure not in config.recipes:
        raise UserError(
            f"figure={config.figure}: has no recipe; choose from {', '.join(config.recipes)}, or "
            "add a recipe to config/reproduce/reproduce.yaml"
        )
    recipe = config.recipes[config.figure]
    files = sorted(file.stem for file in (CONFIG_DIR / "accelerate").glob("*.yaml"))
    for key, value, known in (
        (f"recipes.{config.figure}.launch", recipe.launch, files),
        ("launcher", config.launcher, LAUNCHERS),
    ):
        if value not in (None, *known):
            raise UserError(f"{key}={value}: must be null or one of {', '.join(known)}")
    if recipe.launch and config.launcher:
        raise UserError(
            f"launcher={config.launcher}: a run of figure={config.figure} takes all GPUs of a "
            "machine; set launcher=null and start this command inside a job"
        )
    return recipe


def plan(config: ReproduceConfig) -> list[Run]:
    """Every run of the figure, seed by seed, so that an interrupted series has all arms."""
    recipe, runs = recipe_of(config), []
    for arm, arm_overrides in recipe.arms.items():
        overrides = [f"experiment={recipe.experiment}", *arm_overrides, *config.train]
        overrides.append(f"output_dir={config.output_dir}")
        own = [override for override in overrides if not override.startswith("hydra.")]
        composed = compose("train", TrainConfig, own)
        for seed in range(config.seeds):
            composed.seed = seed
            trained = typed(TrainConfig, composed)
            settle(trained)
            check(trained)
            meta = [checkpoint.meta for checkpoint in find(Path(config.output_dir) / trained.run)]
            done = meta[-1] if meta else {"train_seconds": 0.0, "step": 0}
            runs.append(Run(arm, overrides, seed, trained, done["train_seconds"], done["step"]))
    return sorted(runs, key=lambda run: run.seed)


def estimate(config: ReproduceConfig, runs: list[Run]) -> list[str]:
    """A line an arm and the total: runs done, GPU hours of training left (inf: no time budget)."""
    gpus, lines = compose(f"figure/{config.figure}", None, []).figure.gpus, []
    for name in (*dict.fromkeys(run.arm for run in runs), "total, without evaluation"):
        mine = [run for run in runs if run.arm == name] or runs
        hours = gpus * sum(run.seconds_left for run in mine) / 3600
        done = sum(run.finished for run in mine)
        lines.append(f"{name}: {done} of {len(mine)} runs done, {hours:.2f} GPU hours left")
    return lines


def commands(config: ReproduceConfig, runs: list[Run]) -> list[list[str]]:
    """The command lines: missing trainings (with a launcher a sweep an arm), evaluations, plot."""
    recipe, lines = recipe_of(config), []
    launch = []
    if recipe.launch:
        file = CONFIG_DIR / "accelerate" / f"{recipe.launch}.yaml"
        launch = ["-m", "accelerate.commands.accelerate_cli", "launch", f"--config_file={file}"]
    missing = [run for run in runs if not run.finished]
    sweep = ["-m", f"hydra/launcher={config.launcher}"] if config.launcher else []
    for run in missing:
        same = [r.seed for r in missing if r.arm == run.arm] if sweep else [run.seed]
        if run.seed == same[0]:  # one sweep trains all missing seeds of an arm
            seeds = f"seed={','.join(map(str, same))}"
            lines.append(script("train.py", *sweep, *run.overrides, seeds, launch=launch))
    results = f"results_dir={config.results_dir}"
    scoring = [f"output_dir={config.output_dir}", results, *recipe.evaluate, *config.evaluate]
    lines += [script("evaluate_run.py", f"run={run.config.run}", *scoring) for run in runs]
    drawing = [f"figure={config.figure}", results, f"out_dir={config.out_dir}", *config.plot]
    return [*lines, script("scripts/plot.py", *drawing)]


def script(path: str, *overrides: str, launch: Sequence[str] = ()) -> list[str]:
    return [sys.executable, *launch, str(CONFIG_DIR.parent / path), *overrides]
