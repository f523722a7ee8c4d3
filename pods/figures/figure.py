"""A figure's keys (config/figure/<name>.yaml), and the figures that a command is asked for."""

import math
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import UserError
from pods.config.keys import Section, Text, flat
from pods.runs import results

UNITS = {"hours": 1.0, "minutes": 60.0, "seconds": 3600.0}  # per hour
ACCURACIES = ("ans_acc", "for_acc", "both_acc")


class SecondsPerStep(Section):
    generate: float
    update: float


class FigureSeries(Section):
    runs: list[Text] = Field(default_factory=list)
    colour: Text | None = None
    seconds_per_step: SecondsPerStep | None = None


def without_null(series: dict[str, FigureSeries | None]) -> dict[str, FigureSeries]:
    """The arms of a figure: null leaves out an inherited one."""
    return {label: arm for label, arm in series.items() if arm}


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
    series: Annotated[dict[Text, FigureSeries | None], AfterValidator(without_null)]

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
    """The figures asked for: one, all, that of config.runs, or the quickstart's."""
    if config.runs:
        figures = [_of_runs(config)]
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


def _of_runs(config: FigureConfig) -> Figure:
    """The figure of config.runs={A: [patterns], B: [patterns]} in config.results_dir, with the axes
    of config.figure where that is set, else those of the files."""
    patterns = list(chain(*config.runs.values()))
    if not (paths := results.find(config.results_dir, patterns)):
        text = f"runs={', '.join(patterns)}: no file of results_dir={config.results_dir} matches"
        raise UserError(text)
    first, second, *_ = [*config.runs, None, None]
    axes = config.figure or _named("quickstart").model_copy(update=_axes(paths, config.dataset))
    series = {label: FigureSeries(runs=group) for label, group in config.runs.items()}
    changes = {"title": ", ".join(config.runs), "baseline": first, "pods": second, "series": series}
    return axes.model_copy(update={"name": "runs", "wandb_export": None, **changes})


def _axes(paths: list[Path], dataset: str | None) -> dict[str, Any]:
    """Data set, base model and time axis of a figure of these files."""
    runs = [results.read(path) for path in paths]
    shared = set.intersection(*({*scores.datasets} for run in runs for scores in run.values()))
    if dataset is None and len(shared) != 1:
        text = f"dataset=null: the runs share {', '.join(sorted(shared)) or 'none'}; set one"
        raise UserError(text)
    times = [[scores.meta.get("train_seconds") for scores in run.values()] for run in runs]
    for path in (path for path, seconds in zip(paths, times, strict=True) if None in seconds):
        remedy = "published files have none; add figure=<name> for its axis"
        raise UserError(f"{path}: a checkpoint without train_seconds; {remedy}")
    facts = flat(results.facts_of(results.facts_path(paths[0])).get("train") or {})
    last = max(chain(*times))
    spacing = min(float(np.median(np.diff([0, *sorted(seconds)]))) for seconds in times)
    grids = [facts.get(f"{key}.every_seconds") for key in ("checkpoint", "evaluation")]
    every = min(filter(None, grids), key=lambda grid: abs(grid - spacing), default=spacing)
    return {
        "dataset": dataset or shared.pop(),
        "metric": "ans_acc",
        "checkpoints": None,
        "base": [f"base-{facts['model.name']}"] if facts.get("model.name") else [],
        "grid_seconds": every,
        "budget_seconds": every * max(1, math.ceil(last / every - 0.5)),
        "time_unit": "hours" if last >= 7200 else "minutes" if last >= 300 else "seconds",
        "gpus": 1,
    }
