"""From result files to the series of a figure: runs x marks on one time grid, gaps as NaN.

Departs from the published plotting code: measured train_seconds replace the checkpoint's index
where a file has them, and an irregular run is aligned or left out with a warning.
    uv run scripts/plot.py figure=gsm8k_main
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from pods.config.errors import UserError
from pods.figures import wandb_export
from pods.figures.alignment import listed
from pods.figures.arms import arms
from pods.figures.definition import Absent, Figure, FigureSeries, SecondsPerStep
from pods.figures.samples import QUANTITIES, Samples, base_point, from_results, on_grid
from pods.runs.results import Results, find, read, warn

UNITS = {"hours": 1.0, "minutes": 60.0, "seconds": 3600.0}  # per hour
ACCURACIES = ("ans_acc", "for_acc", "both_acc")


@dataclass
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
    samples: list[Samples] = field(default_factory=list)  # the runs as they were read

    @property
    def title(self) -> str:
        """The label with the number of runs."""
        return f"{self.label} ({len(self.runs)} run{'s' if len(self.runs) > 1 else ''})"


def load(figure: Figure, results_dir: Path | str, skipped: list[str] | None = None) -> list[Series]:
    """The arms of a figure that have files, in the order of its YAML.

    skipped: the names of files that are left out are added. Raises Absent if no arm has a file,
    Unlike if the runs of an arm must not be averaged.
    """
    _check(figure)
    skipped = [] if skipped is None else skipped
    folder, export = Path(results_dir), figure.wandb_export
    if not folder.is_dir():
        raise UserError(f"results_dir={folder}: no such folder; evaluate_run.py creates it")
    files = [export.accuracy, export.length] if export else []
    exported = any((folder / name).is_file() for name in files)
    runs = _from_export(figure, folder) if exported else _from_files(figure, folder, skipped)
    base = base_point(figure, folder, skipped) if any(runs.values()) and not exported else {}
    found = {
        name: _series(figure.series[label], name, samples, figure, base, skipped)
        for label, group in runs.items()
        for name, samples in arms(figure, label, group).items()
    }
    if not any(found.values()):
        wanted = ", ".join([*files, *_patterns(figure)])
        raise Absent(
            f"figure={figure.name}: no usable file in results_dir={results_dir} matches {wanted};"
            " run evaluate_run.py first, or set results_dir to the folder with the results"
        )
    for label, arm in found.items():
        if arm is None:
            warn(f"figure {figure.name}: no results of {label}, drawn without it")
    return [arm for arm in found.values() if arm]


def statistics(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard error (ddof 1; 0 for one run) and count over runs; gaps do not count."""
    there = np.isfinite(values)
    n = there.sum(axis=0)
    mean = np.where(there, values, 0).sum(axis=0) / np.where(n, n, np.nan)
    squares = np.where(there, (values - mean) ** 2, 0).sum(axis=0)
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


def _check(figure: Figure) -> None:
    if figure.metric not in ACCURACIES and not figure.metric.startswith("pass@"):
        raise UserError(f"metric={figure.metric}: needs {' | '.join(ACCURACIES)} | pass@<k>")
    if not 0 < figure.grid_seconds <= figure.budget_seconds:
        raise UserError(
            f"figure.grid_seconds={figure.grid_seconds}: must lie above 0 and at most at"
            f" figure.budget_seconds={figure.budget_seconds}"
        )
    if figure.time_unit not in UNITS:
        raise UserError(f"figure.time_unit={figure.time_unit}: needs {' | '.join(UNITS)}")


def _patterns(figure: Figure) -> list[str]:
    """The patterns of run names of all arms."""
    return [pattern for arm in figure.series.values() if arm for pattern in arm.runs]


def _from_files(figure: Figure, folder: Path, skipped: list[str]) -> dict[str, list[Samples]]:
    """label -> runs, from results/<run>.json."""
    files = {label: find(folder, arm.runs) for label, arm in figure.series.items() if arm}
    results = {path: _read_or_warn(path) for paths in files.values() for path in paths}
    skipped += [path.name for path, run in results.items() if not run]
    counts = Counter(len(run) for run in results.values() if run)
    expected = figure.checkpoints or (counts.most_common(1)[0][0] if counts else 0)
    return {
        label: [from_results(p, results[p], figure, expected) for p in paths if results[p]]
        for label, paths in files.items()
    }


def _from_export(figure: Figure, folder: Path) -> dict[str, list[Samples]]:
    """label -> runs, from the wandb export."""
    if figure.metric != "ans_acc":
        raise UserError(
            f"metric={figure.metric}: the export of figure={figure.name} holds only ans_acc"
        )
    paths = [folder / figure.wandb_export.accuracy, folder / figure.wandb_export.length]
    if missing := next((path.name for path in paths if not path.is_file()), None):
        raise Absent(
            f"figure={figure.name}: results_dir={folder} has no {missing}; set results_dir to the"
            " folder with both files"
        )
    if unused := [path.stem for path in find(folder, _patterns(figure))]:
        warn(
            f"figure {figure.name}: drawn from {paths[0].name}, without {listed(unused)}; to draw"
            " these, move them to another folder"
        )
    runs = wandb_export.load(*paths)
    return {
        label: [run for run in runs if any(fnmatchcase(run.name, p) for p in arm.runs)]
        for label, arm in figure.series.items()
        if arm
    }


def _series(
    arm: FigureSeries,
    label: str,
    runs: list[Samples],
    figure: Figure,
    base: dict[str, float],
    skipped: list[str],
) -> Series | None:
    """One arm on the grid; warns of every irregular run. None without a usable run."""
    marks = round(figure.budget_seconds / figure.grid_seconds)
    grid, kept = figure.grid_seconds * np.arange(1, marks + 1), []
    for run in runs:
        values, notes = on_grid(run, grid)
        if np.isfinite(values["value"]).any():
            kept.append((run, values))
        else:
            value = f"{figure.dataset} {figure.metric}"
            notes.append(f"has no {value} within the budget; the run is left out")
            skipped.append(run.name)
        for note in notes:
            warn(f"{run.name}: {note}")
    if not kept:
        return None
    settings = dict.fromkeys(re.sub(r"-(seed|Run|s)\d+\b", "", run.name) for run, _ in kept)
    if len(settings) > 1:
        warn(f"{label}: averages runs of different settings: {listed(list(settings))}")
    measured = [run.measured for run, _ in kept]
    if any(measured) and not all(measured):
        warn(f"{label}: some runs have measured times and some the published grid")
    if len({run.seed for run, _ in kept} - {None}) == len(kept):
        kept.sort(key=lambda pair: pair[0].seed)
    return Series(
        label=label,
        colour=arm.colour if figure.series.get(label) else None,  # parts of a series differ
        runs=[run.name for run, _ in kept],
        quantities={q: np.stack([values[q] for _, values in kept]) for q in QUANTITIES},
        hours=grid / 3600,
        measured=all(measured),
        seconds_per_step=None if any(measured) else arm.seconds_per_step,
        base=base,
        seeds=[run.seed for run, _ in kept],
        samples=[run for run, _ in kept],
    )


def _read_or_warn(path: Path) -> Results | None:
    try:
        results = read(path)
    except UserError as error:
        warn(f"{error}; the run is left out")
        return None
    if not results:
        warn(f"{path.stem}: has no checkpoint; the run is left out")
    return results
