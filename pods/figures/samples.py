"""Result files as samples: the quantities of a figure at each checkpoint of a run.

Every source, measured or published, ends in `Samples` with seconds of training for each sample.
    uv run scripts/plot.py figure=quickstart
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pods.config.errors import UserError
from pods.config.schema import flat
from pods.figures.alignment import by_index, listed, nearest, remarks
from pods.figures.definition import Figure
from pods.runs.results import (
    Checkpoint,
    Entry,
    Results,
    facts_of,
    facts_path,
    find,
    read_base,
    warn,
)

QUANTITIES = ("value", "length", "seconds", "steps", "tokens_generated", "tokens_trained")
NEAR = 120.0  # s: a mark that takes a farther sample is reported


@dataclass
class Samples:
    """One run. Quantities are (samples,) arrays with NaN for gaps; lengths in tokens."""

    name: str
    quantities: dict[str, np.ndarray]
    reach: float  # s: a mark of the grid takes the nearest sample within this distance
    measured: bool  # seconds are train_seconds of the file, or simulated from its steps
    expected_until: float  # s: an empty mark up to here is reported
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # of training and evaluation, if known
    metric: str = ""
    records: dict[int, list[Path]] = field(default_factory=dict)  # step -> a file of each repeat

    @property
    def seed(self) -> int | None:
        """The seed of training, from the settings or the name; published runs have none."""
        named = re.search(r"seed(\d+)", self.name)
        return self.settings.get("seed", int(named[1]) if named else None)


def from_results(path: Path, results: Results, figure: Figure, expected: int) -> Samples:
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
    timed = np.isfinite(quantities["seconds"])
    measured, end = bool(timed.any()), 0.0
    if measured:
        end = float(np.nanmax(quantities["seconds"]))
        if missing := [step for step, there in zip(steps, timed, strict=True) if not there]:
            notes.append(f"steps {listed(missing)} have no train_seconds and are left out")
    else:
        marks = by_index(steps, expected)
        notes += remarks(steps, marks, expected)
        quantities["seconds"] = figure.grid_seconds * np.array([m or math.nan for m in marks])
    files = f"{figure.dataset}/repeat-*.jsonl"
    return Samples(
        name=path.stem,
        quantities=quantities,
        reach=figure.grid_seconds / 2,
        measured=measured,
        expected_until=end,
        notes=notes,
        settings=settings(path, results, figure.dataset),
        metric=figure.metric,
        records={s: sorted(path.with_suffix("").glob(f"checkpoint-{s}/{files}")) for s in steps},
    )


def settings(path: Path, results: Results, dataset: str) -> dict[str, Any]:
    """Dotted keys of the run's config, and repeats and questions of its evaluation on `dataset`.

    Published files have no config: only repeats.
    """
    facts = facts_of(facts_path(path))
    found = flat(facts.get("train") or {})
    scored = (facts.get("tasks") or {}).get(dataset) or {}
    found |= {"questions": scored["questions"]} if "questions" in scored else {}
    entries = [c.datasets[dataset] for c in results.values() if dataset in c.datasets]
    repeats = max((len(entry.lengths or entry.ans_acc) for entry in entries), default=0)
    return found | ({"repeats": repeats} if repeats else {})


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
    unused = int(np.sum(seconds < grid[-1] + run.reach)) - len(set(index[found]))
    if unused and run.measured:
        notes.append(f"{unused} checkpoints between the marks are not used")
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


def base_point(figure: Figure, folder: Path, skipped: list[str]) -> dict[str, float]:
    """Accuracy and length of the first base file that has the figure's metric; {} without one."""
    paths = [path for pattern in figure.base for path in find(folder, [pattern])]
    for path in dict.fromkeys(paths):  # in the order of the patterns
        try:
            base = read_base(path)
        except UserError as error:
            warn(f"{error}; not used")
            skipped.append(path.name)
            continue
        # evaluate_run.py stores pass@k of a base model beside its file, whose schema has no place
        base.meta = base.meta or facts_of(facts_path(path)).get("details") or {}
        found = point(base, figure)
        if math.isfinite(found["value"]):
            return {"value": found["value"], "length": found["length"]}
        warn(f"{path.stem}: no {figure.dataset} {figure.metric}; no point at time 0")
    return {}


def _entry(checkpoint: Checkpoint, figure: Figure) -> Entry:
    return checkpoint.datasets.get(figure.dataset, Entry())


def _finite(values: list[Any]) -> list[float]:
    return [float(x) for x in values if isinstance(x, (int, float)) and math.isfinite(x)]


def _mean(values: list[Any]) -> float:
    """Mean of the finite values; NaN without any."""
    finite = _finite(values)
    return float(np.mean(finite)) if finite else math.nan


def _times(seconds: np.ndarray) -> str:
    return listed([f"{second:g}" for second in seconds])
