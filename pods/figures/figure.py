"""A figure's keys (config/figure/<name>.yaml), and the figures that a command was asked for.

Used by `uv run scripts/plot.py`, `uv run scripts/speedup.py` and `uv run scripts/report.py`.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import Skipped, UserError
from pods.config.keys import Section, Text, flat
from pods.runs.results import Results, facts_of, facts_path, find, read, warn

Result = TypeVar("Result")
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
    series: dict[Text, FigureSeries | None]


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
    """A figure without result files: figure=all skips it."""

    def __init__(self, text: str, notes: Sequence[Note] = ()) -> None:
        super().__init__(text)
        self.notes = notes


class Unlike(Absent):
    """Runs that must not be averaged or compared: figure=all goes on, and exits with 3."""


def figures(config: FigureConfig) -> list[Figure]:
    """The figures asked for: one, all, that of config.runs, or the quickstart's."""
    if config.runs:
        chosen = [_of_runs(config)]
    elif config.figure is not None and config.figure.name == "all":
        as_written = vars(_named("all"))
        changes = {k: v for k, v in vars(config.figure).items() if v != as_written[k]}
        names = sorted(path.stem for path in (CONFIG_DIR / "figure").glob("[!_]*.yaml"))
        chosen = [_named(name).model_copy(update=changes) for name in names if name != "all"]
    else:
        chosen = [config.figure or _named("quickstart")]
    for i, figure in enumerate(chosen):
        metric, dataset = config.metric or figure.metric, config.dataset or figure.dataset
        if metric not in ACCURACIES and not metric.startswith("pass@"):
            raise UserError(f"metric={metric}: needs {' | '.join(ACCURACIES)} | pass@<k>")
        chosen[i] = figure.model_copy(update={"metric": metric, "dataset": dataset})
    return chosen


def for_each(
    config: FigureConfig, work: Callable[[Figure], tuple[Result, list[Note]]]
) -> tuple[list[Result], list[str]]:
    """The results of every figure asked for, and what was left out; warns of every note."""
    results, left_out, every = [], [], figures(config)
    for figure in every:
        try:
            result, notes = work(figure)
            results.append(result)
        except Absent as error:
            notes = list(error.notes)
            if len(every) == 1:
                for note in notes:
                    warn(note.text)
                raise
            name = figure.name if isinstance(error, Unlike) else ""
            notes.append(Note(f"{error}; skipped", name))
        for note in notes:
            warn(note.text)
        left_out += [note.left_out for note in notes if note.left_out]
    return results, left_out


def finish(left_out: list[str]) -> None:
    """Exit code 3 where something was left out; everything else has been shown."""
    if left_out:
        names = ", ".join(dict.fromkeys(left_out))
        raise Skipped(f"left out, for the reasons above: {names}; the rest is done")


def settings(path: Path, results: Results, dataset: str) -> dict[str, Any]:
    """Dotted keys of the run's config, and repeats and questions of its evaluation on `dataset`.

    Published files have no config: only repeats.
    """
    facts = facts_of(facts_path(path))
    scored = (facts.get("tasks") or {}).get(dataset) or {}
    entries = [c.datasets[dataset] for c in results.values() if dataset in c.datasets]
    repeats = max((len(entry.lengths or entry.ans_acc) for entry in entries), default=0)
    evaluation = {"questions": scored.get("questions"), "repeats": repeats or None}
    known = {key: value for key, value in evaluation.items() if value is not None}
    return flat(facts.get("train") or {}) | known


def _named(name: str) -> Figure:
    return typed(Figure, compose(f"figure/{name}", []).figure)


def _of_runs(config: FigureConfig) -> Figure:
    """The figure of config.runs={A: [patterns], B: [patterns]} in config.results_dir, with the axes
    of config.figure where that is set, else those of the files."""
    patterns = [pattern for group in config.runs.values() for pattern in group]
    if not (paths := find(config.results_dir, patterns)):
        listed = ", ".join(patterns)
        raise UserError(f"runs={listed}: no file of results_dir={config.results_dir} matches")
    first, second, *_ = [*config.runs, None, None]
    axes = config.figure or _named("quickstart").model_copy(update=_axes(paths, config.dataset))
    changes = {
        "name": "runs",
        "title": ", ".join(config.runs),
        "baseline": first,
        "pods": second,
        "wandb_export": None,
        "series": {label: FigureSeries(runs=group) for label, group in config.runs.items()},
    }
    return axes.model_copy(update=changes)


def _axes(paths: list[Path], dataset: str | None) -> dict[str, Any]:
    """Data set, base model and time axis of a figure of these files."""
    runs = {}
    for path in paths:
        with suppress(UserError):  # a damaged file is named, and left out, later
            runs[path] = read(path)
    datasets = [set(checkpoint.datasets) for run in runs.values() for checkpoint in run.values()]
    shared = sorted(set.intersection(*datasets or [set()]))
    if not shared or (dataset is None and len(shared) > 1):
        raise UserError(f"dataset=null: the runs share {', '.join(shared) or 'none'}; set one")
    dataset, seconds = dataset or shared[0], []
    for path, run in runs.items():
        seconds.append([checkpoint.meta.get("train_seconds") for checkpoint in run.values()])
        if None in seconds[-1]:
            remedy = "published files have none; add figure=<name> for its axis"
            raise UserError(f"{path}: a checkpoint without train_seconds; {remedy}")
    facts, last = settings(*next(iter(runs.items())), dataset), max(map(max, seconds))
    spacing = min(float(np.median(np.diff([0, *sorted(times)]))) for times in seconds)
    grids = [facts.get(f"{key}.every_seconds") for key in ("checkpoint", "evaluation")]
    every = min(filter(None, grids), key=lambda grid: abs(grid - spacing), default=spacing)
    return {
        "dataset": dataset,
        "metric": "ans_acc",
        "checkpoints": None,
        "base": [f"base-{facts['model.name']}"] if facts.get("model.name") else [],
        "grid_seconds": every,
        "budget_seconds": every * max(1, math.ceil(last / every - 0.5)),
        "time_unit": "hours" if last >= 7200 else "minutes" if last >= 300 else "seconds",
        "gpus": 1,
    }
