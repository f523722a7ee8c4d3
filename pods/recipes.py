"""From a figure to the trainings behind it: every arm and seed, what is done, what the rest costs.

Used by `uv run scripts/reproduce.py figure=<name>`; the recipes stand in
config/reproduce/reproduce.yaml.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import MISSING

from pods import check
from pods.checkpoints import find
from pods.cli import CONFIG_DIR, UserError, typed
from pods.config import TrainConfig
from pods.runs import read_metrics


@dataclass
class Recipe:
    experiment: str = MISSING
    arms: dict[str, list[str]] = MISSING
    evaluate: list[str] = field(default_factory=list)
    launch: str | None = None  # a file of config/accelerate; None: one process


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
    """One training of a figure."""

    arm: str
    overrides: list[str]  # of train.py, without the seed
    seed: int
    config: TrainConfig
    seconds_done: float  # train_seconds of its newest checkpoint
    steps_done: int

    @property
    def name(self) -> str:
        return self.config.run

    @property
    def finished(self) -> bool:
        """Whether train.py would find its budget used and stop at once."""
        seconds, steps = self.config.budget.train_seconds, self.config.max_steps
        return (seconds is not None and self.seconds_done >= seconds) or (
            steps is not None and self.steps_done >= steps
        )

    def seconds_left(self, seconds_per_step: float | None) -> float:
        """Seconds of training left, by the budget or, where it ends first, by max_steps."""
        if self.finished:
            return 0.0
        limits = []
        if self.config.budget.train_seconds is not None:
            limits.append(self.config.budget.train_seconds - self.seconds_done)
        if self.config.max_steps is not None and seconds_per_step is not None:
            limits.append((self.config.max_steps - self.steps_done) * seconds_per_step)
        return min(limits, default=float("nan"))


def recipe_of(config: ReproduceConfig) -> Recipe:
    """The figure's recipe; raises UserError where there is none or it cannot be started so."""
    if config.seeds < 1:
        raise UserError(f"seeds={config.seeds}: must be 1 or more")
    if config.figure not in config.recipes:
        raise UserError(
            f"figure={config.figure}: no recipe; one of {', '.join(config.recipes)}, or add one to "
            "config/reproduce/reproduce.yaml"
        )
    recipe = config.recipes[config.figure]
    known = sorted(file.stem for file in (CONFIG_DIR / "accelerate").glob("*.yaml"))
    if recipe.launch not in (None, *known):
        raise UserError(
            f"recipes.{config.figure}.launch={recipe.launch}: must be null or one of "
            f"{', '.join(known)}"
        )
    if recipe.launch and config.launcher:
        raise UserError(
            f"launcher={config.launcher}: a run of figure={config.figure} needs all GPUs of a "
            "machine; leave launcher=null and start this command inside a job of your own"
        )
    return recipe


def plan(config: ReproduceConfig) -> list[Run]:
    """Every run of the figure, seed by seed, so that an interrupted series has all arms."""
    recipe = recipe_of(config)
    runs = []
    for arm, own in recipe.arms.items():
        overrides = [f"experiment={recipe.experiment}", *own, *config.train]
        overrides.append(f"output_dir={config.output_dir}")
        for seed, trained in enumerate(compose(overrides, config.seeds)):
            checkpoints = find(Path(config.output_dir) / trained.run)
            done = checkpoints[-1].meta if checkpoints else {"train_seconds": 0.0, "step": 0}
            runs.append(Run(arm, overrides, seed, trained, done["train_seconds"], done["step"]))
    return sorted(runs, key=lambda run: run.seed)


def compose(overrides: list[str], seeds: int) -> Iterator[TrainConfig]:
    """The checked configs that train.py would see with these overrides, one a seed."""
    ConfigStore.instance().store("train_schema", TrainConfig)
    GlobalHydra.instance().clear()
    own = [override for override in overrides if not override.startswith("hydra.")]
    with hydra.initialize_config_dir(str(CONFIG_DIR), version_base=None):
        composed = hydra.compose("train", overrides=own)
    for seed in range(seeds):
        composed.seed = seed
        config = typed(TrainConfig, composed)
        check.check(config)
        yield config


def seconds_per_step(config: ReproduceConfig, runs: list[Run]) -> dict[str, tuple[float, str]]:
    """Arm -> (seconds a step, where that comes from): measured in its runs, else published."""
    published = figure_series(config.figure)
    found = {}
    for arm in dict.fromkeys(run.arm for run in runs):
        measured = [
            sum(step.get(f"seconds/{phase}", 0.0) for phase in PHASES)
            for run in runs
            if run.arm == arm
            for step in metrics_of(run)[1:]  # the first step compiles
        ]
        table = (published.get(arm) or {}).get("seconds_per_step")
        if measured:
            found[arm] = (statistics.median(measured), "measured")
        elif table:
            found[arm] = (table["generate"] + table["update"], "published, L40S")
    return found


PHASES = ("generate", "score", "select", "update")


def metrics_of(run: Run) -> list[dict[str, Any]]:
    path = Path(run.config.output_dir) / run.name / "metrics.jsonl"
    return read_metrics(path) if path.is_file() else []


def figure_series(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIG_DIR / "figure" / f"{name}.yaml").read_text()).get("series", {})
