"""A figure's keys (config/figure/<name>.yaml), and the figures that a command is asked for."""

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import UserError
from pods.config.keys import Section, Text

UNITS = {"hours": 1.0, "minutes": 60.0, "seconds": 3600.0}  # per hour
ACCURACIES = ("ans_acc", "for_acc", "both_acc")


class SecondsPerStep(Section):
    generate: float
    update: float


class FigureSeries(Section):
    runs: list[Text] = Field(default_factory=list)
    colour: Text | None = None
    seconds_per_step: SecondsPerStep | None = None


class WandbExport(Section):
    accuracy: str
    length: str


class Figure(Section):
    name: Text
    title: Text
    dataset: Text
    metric: Text
    grid_seconds: float = Field(gt=0)
    budget_seconds: float = Field(gt=0)
    checkpoints: int | None = Field(gt=0)
    time_unit: Literal[*UNITS]
    gpus: int = Field(gt=0)
    base: list[Text]
    baseline: Text | None
    pods: Text | None
    wandb_export: WandbExport | None
    series: dict[Text, FigureSeries]

    @property
    def grid(self) -> np.ndarray:
        """Seconds of the marks, (marks,)."""
        marks = max(1, round(self.budget_seconds / self.grid_seconds))
        return self.grid_seconds * np.arange(1, marks + 1)

    @property
    def export_files(self) -> list[str]:
        """Names of the wandb export's files: accuracy, length."""
        return [*vars(self.wandb_export).values()] if self.wandb_export else []


class Comparison(Section):
    """The keys of config/_comparison.yaml: how two arms are compared."""

    fraction_of_best: float = Field(gt=0, le=1)
    target: float | None = Field(gt=0, le=1)
    resamples: int = Field(gt=0)
    seed: int


class FigureConfig(Comparison):
    """The keys that the three commands share."""

    figure: Figure | None = None
    runs: dict[Text, list[Text]] = Field(default_factory=dict)
    results_dir: Text
    metric: Text | None
    dataset: Text | None


class Note(NamedTuple):
    """A warning; left_out names the file or figure that the command goes on without."""

    text: str
    left_out: str = ""


class Absent(UserError):
    """A figure without enough result files: figure=all skips it."""


class Unlike(Absent):
    """Runs that must not be averaged or compared: figure=all goes on, and exits with 3."""


def figures(config: FigureConfig) -> list[Figure]:
    """The figures asked for: one, all, or config.runs on the axes of one."""
    if config.runs:
        figures = [_of_runs(config.figure or _named("quickstart"), config.runs)]
    elif config.figure is not None and config.figure.name == "all":
        as_written = vars(_named("all"))
        changes = {k: v for k, v in vars(config.figure).items() if v != as_written[k]}
        names = sorted(path.stem for path in (CONFIG_DIR / "figure").glob("[!_]*.yaml"))
        figures = [_named(name).model_copy(update=changes) for name in names if name != "all"]
    else:
        figures = [config.figure or _named("quickstart")]
    chosen = {"metric": config.metric, "dataset": config.dataset}
    changes = {key: value for key, value in chosen.items() if value is not None}
    figures = [figure.model_copy(update=changes) for figure in figures]
    for metric in (figure.metric for figure in figures):
        if metric not in ACCURACIES and not metric.startswith("pass@"):
            raise UserError(f"metric={metric}: needs {' | '.join(ACCURACIES)} | pass@<k>")
    return figures


def _named(name: str) -> Figure:
    return typed(Figure, compose(f"figure/{name}", []).figure)


def _of_runs(axes: Figure, runs: dict[str, list[str]]) -> Figure:
    """A figure of these arms, {label: patterns}; the first is the baseline."""
    baseline, pods, *_ = [*runs, None, None]
    series = {label: FigureSeries(runs=patterns) for label, patterns in runs.items()}
    changes = {"name": "runs", "title": ", ".join(runs), "wandb_export": None, "series": series}
    return axes.model_copy(update=changes | {"baseline": baseline, "pods": pods})
