"""The keys of a figure (config/figure/<name>.yaml), and the errors that leave one out."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from pods.config.errors import UserError
from pods.config.keys import Location, Section, Share, Text, listed
from pods.config.paths import runs_of
from pods.runs.results import GREEDY

UNITS = {"hours": 1.0, "minutes": 60.0, "seconds": 3600.0}  # per hour
ACCURACIES = ("ans_acc", "for_acc", "both_acc")
Metric = Annotated[Text, Field(pattern=r"^(ans_acc|for_acc|both_acc|pass@\d+)$")]


class FigureSeries(Section):
    runs: list[Text]
    colour: Text | None = None
    seconds_per_step: dict[Literal["generate", "update"], float] | None = None


class Figure(Section):
    name: Text
    title: Text
    dataset: Text
    metric: Metric
    grid_seconds: PositiveFloat
    budget_seconds: PositiveFloat
    time_unit: Literal[*UNITS]
    base: list[Text]
    baseline: Text | None
    pods: Text | None
    series: dict[Text, FigureSeries]

    @property
    def key(self) -> str:
        """The key that chose this figure, as messages name it."""
        return self.name if self.name in ("runs", f"runs{GREEDY}") else f"figure={self.name}"

    @property
    def grid(self) -> np.ndarray:
        """Seconds of the points, (points,)."""
        points = max(1, round(self.budget_seconds / self.grid_seconds))
        return self.grid_seconds * np.arange(1, points + 1)

    @property
    def greedy(self) -> "Figure":
        """This figure by greedy completions."""
        changes = {key: getattr(self, key) + GREEDY for key in ("name", "dataset")}
        changes["title"] = f"{self.title}, greedy"
        return self.model_copy(update=changes)

    def with_methods(self, runs: dict[str, list[str]]) -> "Figure":
        """These axes with other methods, {label: patterns}; only two have a headline."""
        labels = [*runs]
        changes = {
            "name": "runs",
            "title": ", ".join(labels),
            "baseline": labels[0],
            "pods": labels[1] if len(labels) == 2 else None,
            "series": {label: FigureSeries(runs=patterns) for label, patterns in runs.items()},
        }
        return self.model_copy(update=changes)


@dataclass(frozen=True)
class Series:
    """One method of a figure. Arrays are (runs, points); point k stands at k grid intervals."""

    label: str
    colour: str | None
    runs: list[str]
    quantities: dict[str, np.ndarray]
    hours: np.ndarray  # (points,)
    measured: bool  # train_seconds of every run were measured; else they are the published grid's
    seconds_per_step: dict[str, float] | None = None
    base: dict[str, float] = field(default_factory=dict)  # value and length at time 0
    first: list[dict[str, float]] = field(default_factory=list)  # checkpoint-0 of each run
    seeds: list[int | None] = field(default_factory=list)  # of the runs; None: unknown
    settings: dict[str, Any] = field(default_factory=dict)  # of the first run and its evaluation

    @property
    def clock(self) -> str:
        """measured, or the price list whose seconds train_seconds are."""
        return self.settings.get("clock.name", "measured")

    def start(self, quantity: str) -> np.ndarray:
        """What is drawn at time 0: the base, or in a figure without one each run's checkpoint-0."""
        values = np.array([point.get(quantity, np.nan) for point in self.first or [self.base]])
        return values[np.isfinite(values)]

    @property
    def last(self) -> int:
        """The index of the last point that every run has."""
        return min(np.flatnonzero(np.isfinite(run))[-1] for run in self.quantities["value"])

    def of_all_runs(self, quantity: str) -> np.ndarray:
        """(runs, points), NaN after the last point that every run has: a mean over fewer runs
        is not comparable with the points before it. Published runs stay as they are."""
        values = self.quantities[quantity]
        if not self.measured:
            return values
        return np.where(np.arange(values.shape[1]) > self.last, np.nan, values)

    def from_start(self, quantity: str) -> tuple[np.ndarray, np.ndarray]:
        """Hours and values, (runs, points), with those at time 0 where they are known."""
        values = self.of_all_runs(quantity)
        start = self.start(quantity)
        if not len(start):
            return self.hours, values
        column = np.broadcast_to(start, len(values))  # one base for all runs
        return np.insert(self.hours, 0, 0.0), np.column_stack([column, values])

    def seconds_a_step(self) -> np.ndarray:
        """(runs,), each up to its last point."""
        seconds, steps = self.quantities["seconds"], self.quantities["steps"]
        return np.nanmax(seconds, axis=1) / np.nanmax(steps, axis=1)


class Comparison(Section):
    """The keys of config/_comparison.yaml: how two methods are compared."""

    fraction_of_best: Share
    target: Share | None
    resamples: PositiveInt
    seed: int


def unlabelled(runs: Any) -> Any:
    """The folder of a sweep, or a pattern, under the label "": its settings are the methods."""
    return {"": runs} if isinstance(runs, str) else runs


def with_folders(runs: list[str], output_dir: Path) -> list[str]:
    """The patterns; the name of a sweep's folder in output_dir gets its path."""
    return [str(output_dir / name) if runs_of(output_dir / name) else name for name in runs]


class FigureConfig(Section):
    """The keys that the commands share."""

    figure: Figure | None = None
    runs: Annotated[
        dict[Text, Annotated[list[Text], BeforeValidator(listed)]], BeforeValidator(unlabelled)
    ]
    output_dir: Location
    results_dir: Location
    metric: Metric | None
    dataset: Text | None

    def applied(self, figure: Figure) -> Figure:
        """The figure with the metric and the data set of the command line."""
        metric, dataset = self.metric or figure.metric, self.dataset or figure.dataset
        task = dataset.removesuffix(GREEDY)
        figure = figure.model_copy(update={"metric": metric, "dataset": task})
        return figure if task == dataset else figure.greedy


def warn(text: str) -> None:
    """A line on stderr; stdout is for results."""
    print(f"warning: {text}", file=sys.stderr)


class Absent(UserError):
    """A figure without enough result files: figure=all skips it."""


class Unlike(Absent):
    """Runs that must not be averaged or compared: figure=all goes on, and exits with 3."""
