"""From result files to the series of a figure: runs x marks on one time grid, gaps as NaN.

Departs from the published plotting code: measured train_seconds are used where a file has them, and
an irregular run is aligned or left out with a warning instead of shifting its curve.
    uv run scripts/plot.py figure=gsm8k_main
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pods.cli import UserError
from pods.figures import alignment, wandb_export
from pods.figures.definition import Figure, FigureSeries, SecondsPerStep
from pods.results import Checkpoint, Entry, Results, facts_path, find, read, read_base, warn

QUANTITIES = ("value", "length", "seconds", "steps", "tokens_generated", "tokens_trained")
UNITS = {"hours": 1.0, "minutes": 60.0, "seconds": 3600.0}  # per hour
ACCURACIES = ("ans_acc", "for_acc", "both_acc")


class Absent(UserError):
    """None of a figure's result files is there: figure=all skips it."""


@dataclass
class Series:
    """One arm of a figure. Arrays are (runs, marks); mark k stands at k grid intervals."""

    label: str
    colour: str | None
    runs: list[str]
    quantities: dict[str, np.ndarray]
    hours: np.ndarray  # (marks,)
    measured: bool  # times are train_seconds of the files, not the published grid
    seconds_per_step: SecondsPerStep | None = None
    base: dict[str, float] = field(default_factory=dict)  # value and length at time 0


def load(figure: Figure, results_dir: Path | str) -> list[Series]:
    """The arms of a figure that have files, in the order of its YAML. Raises Absent if none has."""
    _check(figure)
    grid = figure.grid_seconds * np.arange(
        1, round(figure.budget_seconds / figure.grid_seconds) + 1
    )
    exported = any((Path(results_dir) / name).is_file() for name in figure.exports)
    found = (_from_export if exported else _from_files)(figure, Path(results_dir), grid)
    if not found:
        wanted = ", ".join([*figure.exports, *figure.patterns])
        raise Absent(
            f"figure={figure.name}: no file in results_dir={results_dir} matches {wanted} or none"
            " is usable; run evaluate_run.py first or point results_dir at the results"
        )
    for label in figure.series:
        if label not in {series.label for series in found}:
            warn(f"figure {figure.name}: no results of {label}, drawn without it")
    return found


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
        points = [(0.0, arm.base["value"], 0.0, 1)] if "value" in arm.base else []
        marks = zip(arm.hours.tolist(), mean.tolist(), sem.tolist(), n.tolist(), strict=True)
        points += [point for point in marks if point[3]]
        columns = zip(*points, strict=True)
        content[arm.label] = dict(
            zip(("time_hours", "mean", "sem", "n_runs"), map(list, columns), strict=True)
        )
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


def _from_files(figure: Figure, folder: Path, grid: np.ndarray) -> list[Series]:
    files = {label: find(folder, arm.runs) for label, arm in figure.series.items()}
    results = {path: _read_or_warn(path) for paths in files.values() for path in paths}
    counts = Counter(len(run) for run in results.values() if run)
    expected = figure.checkpoints or (counts.most_common(1)[0][0] if counts else 0)
    base = _base(figure, folder) if counts else {}
    found = []
    for label, arm in figure.series.items():
        runs = [
            (path.stem, on_grid(path.stem, results[path], figure, expected, grid))
            for path in files[label]
            if results[path]
        ]
        found += _series(label, arm, [(name, run) for name, run in runs if run], grid, base)
    return found


def _series(
    label: str,
    arm: FigureSeries,
    runs: list[tuple[str, dict[str, Any]]],
    grid: np.ndarray,
    base: dict[str, float],
) -> list[Series]:
    if not runs:
        return []
    settings = dict.fromkeys(re.sub(r"-(seed|Run|s)\d+\b", "", name) for name, _ in runs)
    if len(settings) > 1:
        warn(f"{label}: averages runs of different settings: {_listed(list(settings))}")
    measured = [run["measured"] for _, run in runs]
    if any(measured) and not all(measured):
        warn(f"{label}: some runs have measured times and some the published grid")
    return [
        Series(
            label=label,
            colour=arm.colour,
            runs=[name for name, _ in runs],
            quantities={q: np.stack([run[q] for _, run in runs]) for q in QUANTITIES},
            hours=grid / 3600,
            measured=all(measured),
            seconds_per_step=None if any(measured) else arm.seconds_per_step,
            base=base,
        )
    ]


def on_grid(
    name: str, results: Results, figure: Figure, expected: int, grid: np.ndarray
) -> dict[str, Any] | None:
    """One run as arrays over the marks; None, with a warning, if nothing is usable."""
    if 0 in results:
        warn(f"{name}: checkpoint-0 is dropped, time 0 is the base file's")
    results = {step: checkpoint for step, checkpoint in results.items() if step > 0}
    marks, measured = _marks(name, results, figure, expected)
    values = {quantity: np.full(len(grid), np.nan) for quantity in QUANTITIES}
    empty = []
    for (step, checkpoint), mark in zip(results.items(), marks, strict=True):
        if not mark or mark > len(grid):
            continue
        point = _point(checkpoint, figure, name, step)
        point |= {"steps": step, "seconds": point["seconds"] if measured else grid[mark - 1]}
        for quantity in QUANTITIES:
            values[quantity][mark - 1] = point[quantity]
        if not math.isfinite(point["value"]):
            empty.append(step)
    if empty:
        warn(f"{name}: no {figure.dataset} {figure.metric} at steps {_listed(empty)}; left empty")
    if not np.isfinite(values["value"]).any():
        warn(f"{name}: has no usable checkpoint within the budget; the run is left out")
        return None
    return values | {"measured": measured}


def _marks(
    name: str, results: Results, figure: Figure, expected: int
) -> tuple[list[int | None], bool]:
    """Mark of each checkpoint and whether it comes from measured times."""
    seconds = np.array([_number(c.meta.get("train_seconds")) for c in results.values()])
    known = np.isfinite(seconds)
    if not known.any():
        marks, notes = alignment.by_index(list(results), expected)
        for note in notes:
            warn(f"{name}: {note}")
        return marks, False
    timed = alignment.by_time(np.where(known, seconds, 0), figure.grid_seconds)
    marks = [int(mark) if ok and mark else None for mark, ok in zip(timed, known, strict=True)]
    if not known.all():
        steps = [step for step, ok in zip(results, known, strict=True) if not ok]
        warn(f"{name}: steps {_listed(steps)} have no train_seconds and are left out")
    used = [mark for mark in marks if mark]
    lost = sum(known) - len(used)
    if lost:
        warn(f"{name}: {lost} checkpoints between the marks of {figure.grid_seconds:g} s not used")
    gaps = sorted(set(range(1, max(used, default=0))) - set(used))
    if gaps:
        at = [f"{mark * figure.grid_seconds:g}" for mark in gaps]
        warn(f"{name}: no checkpoint near {_listed(at)} s; the marks stay empty")
    return marks, True


def _point(checkpoint: Checkpoint, figure: Figure, name: str, step: int) -> dict[str, float]:
    entry = checkpoint.datasets.get(figure.dataset, Entry())
    return {
        "value": _value(checkpoint, figure, f"{name}: step {step}"),
        "length": _mean(entry.lengths, None),
        "seconds": _number(checkpoint.meta.get("train_seconds")),
        "tokens_generated": _number(checkpoint.meta.get("tokens_generated")),
        "tokens_trained": _number(checkpoint.meta.get("tokens_trained")),
    }


def _value(checkpoint: Checkpoint, figure: Figure, where: str) -> float:
    if figure.metric.startswith("pass@"):
        by_k = checkpoint.meta.get("pass@k", {}).get(figure.dataset, {})
        value = by_k.get(figure.metric.removeprefix("pass@"))
        return _number(value.get("mean") if isinstance(value, dict) else value)
    repeats = getattr(checkpoint.datasets.get(figure.dataset, Entry()), figure.metric)
    return _mean(repeats, lambda n: warn(f"{where}: {n} of {len(repeats)} repeats are no numbers"))


def _mean(values: list[Any], on_bad: Callable[[int], None] | None) -> float:
    """Mean of the finite values, NaN if there is none; `on_bad` hears how many were dropped."""
    numbers = [_number(value) for value in values]
    finite = [number for number in numbers if math.isfinite(number)]
    if on_bad and finite and len(finite) < len(numbers):
        on_bad(len(numbers) - len(finite))
    return float(np.mean(finite)) if finite else math.nan


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def _base(figure: Figure, folder: Path) -> dict[str, float]:
    """Accuracy and length of the first base file that is there and has the figure's metric."""
    paths = [path for pattern in figure.base for path in find(folder, [pattern])]
    for path in dict.fromkeys(paths):  # in the order of the patterns
        try:
            base = read_base(path)
        except UserError as error:
            warn(f"{error}; not used")
            continue
        base.meta = base.meta or _base_details(path)
        point = _point(base, figure, path.stem, 0)
        if math.isfinite(point["value"]):
            return {"value": point["value"], "length": point["length"]}
        warn(f"{path.stem}: no {figure.dataset} {figure.metric}; no point at time 0")
    return {}


def _base_details(path: Path) -> dict[str, Any]:
    """What stands in a run's meta has no place in a base file: evaluate_run.py puts it beside."""
    try:
        return json.loads(facts_path(path).read_text(encoding="utf-8")).get("details") or {}
    except (OSError, ValueError, AttributeError):
        return {}


def _read_or_warn(path: Path) -> Results | None:
    try:
        results = read(path)
    except UserError as error:
        warn(f"{error}; the run is left out")
        return None
    if not results:
        warn(f"{path.stem}: has no checkpoint; the run is left out")
    return results or None


def _from_export(figure: Figure, folder: Path, grid: np.ndarray) -> list[Series]:
    if figure.metric != "ans_acc":
        raise UserError(
            f"metric={figure.metric}: the export of figure={figure.name} holds only ans_acc"
        )
    paths = [folder / name for name in figure.exports]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise Absent(
            f"figure={figure.name}: results_dir={folder} has no {' and '.join(missing)};"
            " point results_dir at the folder that holds them"
        )
    own = [path.stem for path in find(folder, figure.patterns)]
    if own:
        warn(
            f"figure {figure.name}: drawn from {paths[0].name}, without {_listed(own)}; to draw"
            " these, put them in a folder of their own"
        )
    runs = wandb_export.on_grid(paths[0], paths[1], grid)
    found = []
    for label, arm in figure.series.items():
        mine = [(name, run) for name, run in runs.items() if wandb_export.matches(name, arm.runs)]
        found += _series(label, arm, mine, grid, {})
    return found


def _listed(items: list[Any]) -> str:
    return ", ".join(map(str, items[:8])) + (", ..." if len(items) > 8 else "")
