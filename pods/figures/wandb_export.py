"""The multi-GPU runs of the paper: a wandb CSV export in which every row holds one run's sample.

Column `eval/time` is in seconds; `data/<RUN> - _step` counts micro-steps (ga per optimiser step)
and `data/<RUN> - <metric>` is the value. Samples are 0.7-7 minutes apart, so a grid mark takes
the nearest one, as published; a mark with none in reach stays empty instead of repeating the end.
Used by `uv run scripts/plot.py figure=h100s`.
"""

import csv
import math
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from pods.cli import UserError
from pods.figures import alignment
from pods.results import run_order, warn

COLUMN = re.compile(r"(?:data/)?(?P<run>\S+) - (?P<metric>.+)")
REACH = 420.0  # s, the longest pause between samples: a mark farther from all is outside the run
NEAR = 120.0  # s, farther samples are still taken, as published, but not in silence


def on_grid(accuracy: Path, length: Path, grid: np.ndarray) -> dict[str, dict[str, Any]]:
    """{run: {quantity: (marks,)}} of the runs that both files hold, Run10 after Run9."""
    accuracies, lengths = read(accuracy), read(length)
    for name in sorted(accuracies.keys() ^ lengths.keys(), key=run_order):
        only = accuracy.name if name in accuracies else length.name
        warn(f"{name}: only in {only}; the run is left out, its seed is not in both files")
    runs = {}
    for name in sorted(accuracies.keys() & lengths.keys(), key=run_order):
        values = _sampled(accuracies[name], grid)
        _say(name, "no sample near {} min; the marks stay empty", grid[np.isnan(values["value"])])
        far = grid[np.abs(values["seconds"] - grid) > NEAR]
        _say(name, f"the nearest sample is over {NEAR / 60:g} min from {{}} min; used there", far)
        values["length"] = _sampled(lengths[name], grid)["value"]
        ga = int(match[1]) if (match := re.search(r"-ga(\d+)", name)) else 1
        nothing = np.full(len(grid), np.nan)
        runs[name] = values | {
            "steps": values["steps"] / ga,
            "tokens_generated": nothing,
            "tokens_trained": nothing,
            "measured": False,
        }
    return runs


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read(path: Path) -> dict[str, np.ndarray]:
    """{run: (samples, 3) of seconds, micro-steps, value} by time; other rows are skipped."""
    samples: dict[str, list[tuple[float, float, float]]] = {}
    skipped = 0
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        columns = _columns(path, rows.fieldnames or [])
        for row in rows:
            seconds, used = _float(row.get("eval/time")), False
            for run, (step, metric) in columns.items():
                value = _float(row.get(metric))
                if math.isfinite(seconds) and math.isfinite(value):
                    samples.setdefault(run, []).append((seconds, _float(row.get(step)), value))
                    used = True
            skipped += not used
    if skipped:
        warn(f"{path.name}: {skipped} rows hold no time or no value and are skipped")
    return {run: np.array(sorted(values)) for run, values in samples.items()}


def _columns(path: Path, header: list[str]) -> dict[str, tuple[str, str]]:
    """{run: (its _step column, its value column)}; the __MIN and __MAX copies are passed over."""
    columns: dict[str, dict[str, str]] = {}
    for column in header:
        match = COLUMN.fullmatch(column)
        if match and not column.endswith(("__MIN", "__MAX")):
            kind = "step" if match["metric"] == "_step" else "value"
            columns.setdefault(match["run"], {})[kind] = column
    runs = {run: (c.get("step", ""), c["value"]) for run, c in columns.items() if "value" in c}
    if "eval/time" not in header or not runs:
        raise UserError(
            f"{path}: no column eval/time or no column 'data/<RUN> - <metric>'; export the runs"
            " from wandb with eval/time as the x axis"
        )
    return runs


def _say(name: str, message: str, marks: np.ndarray) -> None:
    if marks.size:
        warn(f"{name}: {message.format(', '.join(f'{mark / 60:g}' for mark in marks))}")


def _sampled(samples: np.ndarray, grid: np.ndarray) -> dict[str, np.ndarray]:
    index = alignment.by_nearest_sample(samples[:, 0], grid, REACH)
    there = index >= 0
    names = ("seconds", "steps", "value")
    return {name: np.where(there, samples[index, i], np.nan) for i, name in enumerate(names)}


def _float(cell: str | None) -> float:
    try:
        return float(cell) if cell else math.nan
    except ValueError:
        return math.nan
