"""Result files as samples: the quantities of a figure at each checkpoint of a run.

Every source, measured or published, ends in `Samples` with seconds of training for each sample.
    uv run scripts/plot.py figure=quickstart
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pods.cli import UserError
from pods.figures.alignment import by_index, listed, nearest, remarks
from pods.figures.definition import Figure
from pods.results import Checkpoint, Entry, Results, facts_path, find, read_base, warn

QUANTITIES = ("value", "length", "seconds", "steps", "tokens_generated", "tokens_trained")
NEAR = 120.0  # s: a mark that takes a farther sample is reported


@dataclass
class Samples:
    """One run. Quantities are (samples,) arrays with NaN for gaps; lengths in tokens."""

    name: str
    quantities: dict[str, np.ndarray]
    reach: float  # s: a mark of the grid takes the nearest sample within this distance
    measured: bool  # seconds are train_seconds of the file
    expected_until: float  # s: an empty mark up to here is reported
    notes: list[str] = field(default_factory=list)


def from_results(name: str, results: Results, figure: Figure, expected: int) -> Samples:
    """A result file: its train_seconds, or where it has none those of the published grid.

    expected: checkpoints of a complete published run.
    """
    steps = [step for step in results if step > 0]
    points = [point(results[step], figure) | {"steps": float(step)} for step in steps]
    quantities = {q: np.array([p[q] for p in points]) for q in QUANTITIES}
    notes = ["checkpoint-0 is dropped; time 0 is the base file's"] if 0 in results else []
    for step in steps:
        repeats = getattr(_entry(results[step], figure), figure.metric, [])
        bad = len(repeats) - len(_finite(repeats))
        if 0 < bad < len(repeats):
            notes.append(f"step {step}: {bad} of {len(repeats)} repeats are not numbers")
    known = np.isfinite(quantities["seconds"])
    measured, end = bool(known.any()), 0.0
    if measured:
        end = float(np.nanmax(quantities["seconds"]))
        if missing := [step for step, there in zip(steps, known, strict=True) if not there]:
            notes.append(f"steps {listed(missing)} have no train_seconds and are left out")
    else:
        marks = by_index(steps, expected)
        notes += remarks(steps, marks, expected)
        quantities["seconds"] = figure.grid_seconds * np.array([m or math.nan for m in marks])
    return Samples(name, quantities, figure.grid_seconds / 2, measured, end, notes)


def on_grid(run: Samples, grid: np.ndarray) -> tuple[dict[str, np.ndarray], list[str]]:
    """The quantities at the grid times, (marks,), and the irregularities of the run in words."""
    seconds = run.quantities["seconds"]
    index = nearest(seconds, grid, run.reach)
    found = index >= 0
    values = {
        name: np.where(found, column[index], np.nan) if len(column) else np.full(len(grid), np.nan)
        for name, column in run.quantities.items()
    }
    notes = list(run.notes)
    if unused := int(np.sum(seconds < grid[-1] + run.reach)) - len(set(index[found])):
        notes += [f"{unused} checkpoints between the marks are not used"] * run.measured
    if len(empty := grid[~found & (grid < run.expected_until)]):
        notes.append(f"no checkpoint near {_times(empty)} s; the marks stay empty")
    if len(far := grid[np.abs(values["seconds"] - grid) > max(NEAR, grid[0] / 2)]):
        notes.append(f"the checkpoint used at {_times(far)} s is over {NEAR:g} s away")
    if len(blank := values["steps"][found & np.isnan(values["value"])]):
        notes.append(f"no value at steps {listed([int(step) for step in blank])}; left empty")
    return values, notes


def point(checkpoint: Checkpoint, figure: Figure) -> dict[str, float]:
    """The quantities of one checkpoint but its step; NaN where the file has none."""
    entry, meta = _entry(checkpoint, figure), checkpoint.meta
    if figure.metric.startswith("pass@"):
        value = meta.get("pass@k", {}).get(figure.dataset, {}).get(figure.metric[len("pass@") :])
        values = [value.get("mean") if isinstance(value, dict) else value]
    else:
        values = getattr(entry, figure.metric)
    return {
        "value": _mean(values),
        "length": _mean(entry.lengths),
        "seconds": _mean([meta.get("train_seconds")]),
        "tokens_generated": _mean([meta.get("tokens_generated")]),
        "tokens_trained": _mean([meta.get("tokens_trained")]),
    }


def base_point(figure: Figure, folder: Path) -> dict[str, float]:
    """Accuracy and length of the first base file that has the figure's metric; {} without one."""
    paths = [path for pattern in figure.base for path in find(folder, [pattern])]
    for path in dict.fromkeys(paths):  # in the order of the patterns
        try:
            base = read_base(path)
        except UserError as error:
            warn(f"{error}; not used")
            continue
        # evaluate_run.py stores pass@k of a base model beside its file, whose schema has no place
        base.meta = base.meta or _details(path)
        found = point(base, figure)
        if math.isfinite(found["value"]):
            return {"value": found["value"], "length": found["length"]}
        warn(f"{path.stem}: no {figure.dataset} {figure.metric}; no point at time 0")
    return {}


def _entry(checkpoint: Checkpoint, figure: Figure) -> Entry:
    return checkpoint.datasets.get(figure.dataset, Entry())


def _details(path: Path) -> dict[str, Any]:
    try:
        return json.loads(facts_path(path).read_text(encoding="utf-8")).get("details") or {}
    except (OSError, ValueError, AttributeError):
        return {}


def _finite(values: list[Any]) -> list[float]:
    return [float(x) for x in values if isinstance(x, (int, float)) and math.isfinite(x)]


def _mean(values: list[Any]) -> float:
    """Mean of the finite values; NaN without any."""
    finite = _finite(values)
    return float(np.mean(finite)) if finite else math.nan


def _times(seconds: np.ndarray) -> str:
    return listed([f"{second:g}" for second in seconds])
