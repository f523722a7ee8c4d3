"""The arms of a figure on one time grid: runs x marks, gaps as NaN.

uv run scripts/plot.py figure=gsm8k_main
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pods.config.errors import UserError
from pods.figures import reading
from pods.figures.figure import Absent, Figure, Note, SecondsPerStep, Unlike
from pods.figures.published import listed
from pods.figures.reading import QUANTITIES, Samples, nearest

FAR = 120.0  # s: a mark that takes a farther sample is reported


@dataclass(frozen=True)
class Series:
    """One arm of a figure. Arrays are (runs, marks); mark k stands at k grid intervals."""

    label: str
    colour: str | None
    runs: list[str]
    quantities: dict[str, np.ndarray]
    hours: np.ndarray  # (marks,)
    measured: bool  # every run has train_seconds; else the published grid
    seconds_per_step: SecondsPerStep | None = None
    base: dict[str, float] = field(default_factory=dict)  # value and length at time 0
    seeds: list[int | None] = field(default_factory=list)  # of the runs; None: unknown
    clock: str = "measured"  # or the price list whose seconds train_seconds are

    @property
    def title(self) -> str:
        """The label with the number of runs."""
        return f"{self.label} ({len(self.runs)} run{'s' if len(self.runs) > 1 else ''})"


def read(figure: Figure, results_dir: Path | str) -> tuple[list[Series], list[Note]]:
    """The arms of a figure that have files, in the order of its YAML.

    Raises Absent if no arm has a file, Unlike if runs must not be averaged or compared.
    """
    folder = Path(results_dir)
    if not folder.is_dir():
        raise UserError(f"results_dir={folder}: no such folder; evaluate_run.py creates it")
    runs, notes = reading.runs(figure, folder)
    base, of_base = reading.base_point(figure, folder) if any(runs.values()) else ({}, [])
    notes += of_base
    arms = {}
    for label, samples in runs.items():
        notes += reading.differences(figure, label, samples)
        arms[label], of_arm = _series(figure, label, samples, base)
        notes += of_arm
    if not any(arms.values()):
        wanted = [pattern for arm in figure.series.values() if arm for pattern in arm.runs]
        export = figure.wandb_export
        listing = ", ".join([export.accuracy, export.length, *wanted] if export else wanted)
        text = (
            f"figure={figure.name}: no usable file in results_dir={results_dir} matches {listing}"
        )
        remedy = "run evaluate_run.py first, or set results_dir to the folder with the results"
        raise Absent(f"{text}; {remedy}", notes)
    for label in (label for label, arm in arms.items() if arm is None):
        notes.append(Note(f"figure {figure.name}: no results of {label}, drawn without it"))
    present = [arm for arm in arms.values() if arm]
    if len(clocks := {arm.clock: arm.label for arm in present}) > 1:
        parts = ", ".join(f"{clock} of {label}" for clock, label in clocks.items())
        text = f"figure={figure.name}: seconds of two clocks cannot be compared: {parts}"
        raise Unlike(f"{text}; match runs of one clock", notes)
    return present, notes


def statistics(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard error (ddof 1; 0 for one run) and count over runs; gaps do not count."""
    known = np.isfinite(values)
    n = known.sum(axis=0)
    mean = np.where(known, values, 0).sum(axis=0) / np.where(n, n, np.nan)
    squares = np.where(known, (values - mean) ** 2, 0).sum(axis=0)
    return mean, np.sqrt(squares / np.maximum(n - 1, 1) / np.maximum(n, 1)), n


def to_json(series: list[Series]) -> dict[str, Any]:
    """The content of curves.json; marks without any run are absent, the base stands at time 0."""
    content = {}
    for arm in series:
        mean, sem, n = statistics(arm.quantities["value"])
        columns = {"time_hours": arm.hours, "mean": mean, "sem": sem, "n_runs": n}
        line = {name: column[n > 0].tolist() for name, column in columns.items()}
        if "value" in arm.base:
            for column, first in zip(line.values(), (0.0, arm.base["value"], 0.0, 1), strict=True):
                column.insert(0, first)
        content[arm.label] = line
    return {"series": content}


def _series(
    figure: Figure, label: str, runs: list[Samples], base: dict[str, float]
) -> tuple[Series | None, list[Note]]:
    """One arm on the grid, and every irregularity; None without a usable run."""
    marks = max(1, round(figure.budget_seconds / figure.grid_seconds))
    grid, used, notes = figure.grid_seconds * np.arange(1, marks + 1), [], []
    for run in runs:
        values, irregular = _on_grid(run, grid)
        notes += [Note(f"{run.name}: {text}") for text in irregular]
        if np.isfinite(values["value"]).any():
            used.append((run, values))
        else:
            value = f"{figure.dataset} {figure.metric}"
            text = f"{run.name}: has no {value} within the budget; the run is left out"
            notes.append(Note(text, run.name))
    if not used:
        return None, notes
    names = dict.fromkeys(re.sub(r"-(seed|Run|s)\d+\b", "", run.name) for run, _ in used)
    if len(names) > 1:
        notes.append(Note(f"{label}: averages runs of different settings: {listed(list(names))}"))
    measured = [run.measured for run, _ in used]
    if any(measured) and not all(measured):
        notes.append(Note(f"{label}: some runs have measured times and some the published grid"))
    if len({run.seed for run, _ in used} - {None}) == len(used):
        used.sort(key=lambda pair: pair[0].seed)
    arm = figure.series[label]
    return Series(
        label=label,
        colour=arm.colour,
        runs=[run.name for run, _ in used],
        quantities={q: np.stack([values[q] for _, values in used]) for q in QUANTITIES},
        hours=grid / 3600,
        measured=all(measured),
        seconds_per_step=None if any(measured) else arm.seconds_per_step,
        base=base,
        seeds=[run.seed for run, _ in used],
        clock=used[0][0].settings.get("clock.name", "measured"),
    ), notes


def _on_grid(run: Samples, grid: np.ndarray) -> tuple[dict[str, np.ndarray], list[str]]:
    """The quantities at the grid times, (marks,), and the irregularities of the run in words."""
    seconds = run.quantities["seconds"]
    index = nearest(seconds, grid, run.reach)
    known = index >= 0
    values = {
        name: np.where(known, column[index], np.nan) if len(column) else np.full(len(grid), np.nan)
        for name, column in run.quantities.items()
    }
    notes = list(run.notes)
    unused = int(np.sum(seconds < grid[-1] + run.reach)) - len(set(index[known]))
    if unused and run.measured:
        notes.append(f"{unused} checkpoints between the marks are not used")
    if len(empty := grid[~known & (grid < run.expected_until)]):
        notes.append(f"no checkpoint near {_times(empty)} s; the marks stay empty")
    if len(far := grid[np.abs(values["seconds"] - grid) > max(FAR, grid[0] / 2)]):
        notes.append(f"the checkpoint used at {_times(far)} s is over {FAR:g} s away")
    if len(blank := values["steps"][known & np.isnan(values["value"])]):
        notes.append(f"no value at steps {listed([int(step) for step in blank])}; left empty")
    return values, notes


def _times(seconds: np.ndarray) -> str:
    return listed([f"{second:g}" for second in seconds])
