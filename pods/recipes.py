"""From a figure to its commands: trainings by arm and seed, their evaluations, the plot.

The recipes are in config/reproduce/reproduce.yaml. Departs from the paper's scripts: each of the
ten runs of an arm has its own seed.
    uv run scripts/reproduce.py figure=<name> dry_run=true
"""

import math
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from pods.config import sweeps
from pods.config.check import check, settle
from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.runs.checkpoints import find

LAUNCHERS = ("submitit_slurm", "submitit_local")


@dataclass
class Recipe:
    experiment: str
    arms: dict[str, list[str]]
    evaluate: list[str] = field(default_factory=list)
    launch: str | None = None


@dataclass
class ReproduceConfig:
    figure: str
    seeds: int
    first_seed: int
    dry_run: bool
    launcher: str | None
    train: list[str]
    evaluate: list[str]
    plot: list[str]
    output_dir: str
    results_dir: str
    out_dir: str
    recipes: dict[str, Recipe]


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
    for arm, own in recipe.arms.items():
        overrides = [f"experiment={recipe.experiment}", *own, *config.train]
        overrides.append(f"output_dir={config.output_dir}")
        ours = [override for override in overrides if not override.startswith("hydra.")]
        composed = compose("train", TrainConfig, ours)
        if config.launcher:  # train.py -m names the runs
            composed.run = sweeps.name(composed, ours)
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            composed.seed = seed
            trained = typed(TrainConfig, composed)
            settle(trained)
            check(trained)
            found = find(Path(config.output_dir) / trained.run)
            done = found[-1].meta if found else {"train_seconds": 0.0, "step": 0}
            runs.append(Run(arm, overrides, seed, trained, done["train_seconds"], done["step"]))
    return sorted(runs, key=lambda run: run.seed)


def estimate(config: ReproduceConfig, runs: list[Run]) -> list[str]:
    """A line per arm and the total: runs done, GPU hours of training left (inf: no time budget)."""
    gpus, lines = compose(f"figure/{config.figure}", None, []).figure.gpus, []
    for name in (*dict.fromkeys(run.arm for run in runs), "total, without evaluation"):
        mine = [run for run in runs if run.arm == name] or runs
        hours = sum(run.seconds_left for run in mine) / 3600
        done = sum(run.finished for run in mine)
        left = f"{gpus * hours:.2f} GPU hours left"
        left += f" ({hours:.2f} hours on {gpus} GPUs)" if gpus > 1 else ""
        lines.append(f"{name}: {done} of {len(mine)} runs done, {left}")
    return lines


def commands(config: ReproduceConfig, runs: list[Run]) -> list[list[str]]:
    """The command lines: missing trainings (with a launcher a sweep per arm), evaluations, plot."""
    recipe, seeds = recipe_of(config), defaultdict(list)  # one command trains all of its seeds
    python, root = sys.executable, CONFIG_DIR.parent
    for run in runs:
        if not run.finished:
            seeds[run.arm if config.launcher else id(run)].append(run)
    train = [str(root / "train.py")]
    if recipe.launch:
        file = CONFIG_DIR / "accelerate" / f"{recipe.launch}.yaml"
        launch = ["-m", "accelerate.commands.accelerate_cli", "launch", f"--config_file={file}"]
        train = [*launch, *train]
    if config.launcher:
        train += ["-m", f"hydra/launcher={config.launcher}"]
    lines = [
        [python, *train, *same[0].overrides, f"seed={','.join(str(run.seed) for run in same)}"]
        for same in seeds.values()
    ]
    results = f"results_dir={config.results_dir}"
    score = [f"output_dir={config.output_dir}", results, *recipe.evaluate, *config.evaluate]
    evaluate = [python, str(root / "evaluate_run.py")]
    lines += [[*evaluate, f"run={run.config.run}", *score] for run in runs]
    draw = [f"figure={config.figure}", results, f"out_dir={config.out_dir}", *config.plot]
    return [*lines, [python, str(root / "scripts" / "plot.py"), *draw]]
