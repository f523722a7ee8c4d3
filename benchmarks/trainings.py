"""One training of the board: its keys, and train.py in this process."""

import io
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from pods import files
from pods.config.command import CONFIG_DIR
from pods.config.errors import UserError
from pods.config.keys import Location, Section, Text
from pods.figures import ranking
from pods.figures.ranking import Cell

TUNING, UNSEEN = range(100), range(100, 200)  # seeds


class Arm(Section):
    what: Text
    sizes: list[list[int]]  # [P, n, m] to tune
    overrides: list[Text] | None = None
    cells_of: Text | None = None  # the arm whose cells it has where it was not tuned itself


class BoardConfig(Section):
    algorithm: Text | None
    cell: Cell | None
    world: Text
    worlds: list[Text]
    main: list[Text]
    stage: Literal["tune", "report"]
    seeds: int = Field(ge=1, le=len(UNSEEN))
    budget: PositiveFloat
    clock: Text
    jobs: PositiveInt
    output_dir: Location
    results_dir: Location
    out_dir: Location
    as_json: bool = Field(alias="json")
    settings: list[Text]
    rate: PositiveFloat
    arms: dict[Text, Arm]


class Training(NamedTuple):
    """One run: of an arm at a cell, with a seed and a budget at some prices, in a world."""

    arm: str
    cell: Cell
    seed: int
    budget: float
    clock: str
    world: str

    @property
    def run(self) -> str:
        """The name of its folder."""
        parts = [self.world, self.arm, *self.cell, self.seed, self.budget, self.clock]
        return re.sub(r"[^\w.+-]+", "_", "-".join(map(str, parts)))


def commit() -> str:
    """Of the code; -dirty with changed files other than results."""
    git = f"git -C {CONFIG_DIR.parent}"
    head = subprocess.getoutput(f"{git} rev-parse --short=12 HEAD")
    changes = subprocess.getoutput(f"{git} status --porcelain -uno -- ':!benchmarks/results'")
    return f"{head}-dirty" if changes else head


def folder_of(config: BoardConfig, training: Training) -> Path:
    """Of the run, until its result is stored: a board that was stopped goes on with it."""
    return config.output_dir / f"{config.stage}-{training.run}"


def command_line(config: BoardConfig, training: Training) -> list[str]:
    """The keys of a training."""
    P, n, m, rate = training.cell
    arm = config.arms.get(training.arm)
    overrides = arm.overrides if arm else None
    own = overrides or [f"algorithm={training.arm}"]
    return [
        f"experiment={training.world}",
        *own,
        *config.settings,
        f"prompts_per_step={P}",
        f"rollouts_per_prompt={n}",
        f"kept_per_prompt={m}",
        f"micro_batch_size={min(P * m, 64)}",
        f"optimizer.learning_rate={rate}",
        f"clock={training.clock}",
        f"budget.train_seconds={training.budget}",
        f"evaluation.every_seconds={training.budget / ranking.MARKS}",
        f"evaluation.split={'validation' if config.stage == 'tune' else 'test'}",
        f"seed={training.seed}",
        f"run={folder_of(config, training).name}",
        f"output_dir={config.output_dir}",
    ]


def train(config: BoardConfig, searched: list[Path], training: Training) -> dict[str, list[float]]:
    """train.py in this process: accuracies at the marks, 0 from where the loss diverged; both:
    right and well formed, sampled. Raises UserError with the line of any other failure.
    searched: the folder of --config-dir, which may hold the world."""
    errors = io.StringIO()
    diverged = False
    flags = [f"--config-dir={folder}" for folder in searched]
    sys.argv = ["train.py", *flags, *command_line(config, training)]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            runpy.run_path(str(CONFIG_DIR.parent / "train.py"), run_name="__main__")
    except SystemExit as error:
        diverged = re.search(r"(loss|grad_norm) is (nan|inf)", errors.getvalue()) is not None
        if not diverged:
            lines = errors.getvalue().splitlines() or [f"exit code {error.code}"]
            raise UserError(f"{training.run}: {lines[-1]}") from error
    lines = files.read_lines(folder_of(config, training) / "evaluations.jsonl")
    seconds = [line["train_seconds"] for line in lines]
    marks = training.budget / ranking.MARKS * np.arange(1, ranking.MARKS + 1)
    after = np.searchsorted(seconds, marks)  # one step may pass two marks
    if not diverged:
        after = np.minimum(after, len(lines) - 1)
    lines = [*lines, dict.fromkeys(ranking.METRICS.values(), 0.0) | {"entry": {"both_acc": [0.0]}}]
    results = {metric: [lines[i][name] for i in after] for metric, name in ranking.METRICS.items()}
    return results | {"both": [lines[i]["entry"]["both_acc"][0] for i in after]}
