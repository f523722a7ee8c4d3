"""The paper's multi-GPU runs: a wandb CSV export in which every row holds one run's sample.

Column `eval/time` is in seconds; `data/<RUN> - _step` counts micro-steps (ga per optimiser step)
and `data/<RUN> - <metric>` is the value. Samples are 0.7-7 minutes apart, so a grid mark takes the
nearest one, as published; a mark without a sample in reach stays empty.
    uv run scripts/plot.py figure=h100s
"""

import csv
import math
import re
from pathlib import Path

import numpy as np

from pods.config.errors import UserError
from pods.figures.alignment import nearest
from pods.figures.samples import Samples
from pods.runs.results import run_order, warn

# A run's values; wandb adds the copies __MIN and __MAX.
VALUE = re.compile(r"(?:data/)?(?P<run>\S+) - (?!_step).+(?<!__MIN)(?<!__MAX)")
REACH = 420.0  # s, the longest pause between samples: a farther mark lies outside the run


def load(accuracy: Path, length: Path) -> list[Samples]:
    """The runs that both files hold, Run10 after Run9."""
    accuracies, lengths = read(accuracy), read(length)
    runs = []
    for name in sorted(accuracies.keys() | lengths.keys(), key=run_order):
        if name not in accuracies or name not in lengths:
            only = accuracy.name if name in accuracies else length.name
            warn(f"{name}: only in {only}; the run is left out")
            continue
        seconds, micro_steps, value = accuracies[name].T
        ga = int(match[1]) if (match := re.search(r"-ga(\d+)", name)) else 1
        unknown = np.full(len(seconds), np.nan)
        quantities = {
            "seconds": seconds,
            "steps": micro_steps / ga,
            "value": value,
            "length": lengths[name][nearest(lengths[name][:, 0], seconds, math.inf), 2],
            "tokens_generated": unknown,
            "tokens_trained": unknown,
        }
        runs.append(Samples(name, quantities, REACH, measured=False, expected_until=math.inf))
    return runs


def read(path: Path) -> dict[str, np.ndarray]:
    """{run: (samples, 3): seconds, micro-steps, value}, by time; incomplete rows are skipped."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        rows, names = list(reader), reader.fieldnames or []
    table = {name: np.array([_float(row[name]) for row in rows]) for name in names}
    runs = {match["run"]: name for name in table if (match := VALUE.fullmatch(name))}
    if "eval/time" not in table or not runs:
        raise UserError(
            f"{path}: no column eval/time or no column 'data/<RUN> - <metric>'; export the runs"
            " from wandb with eval/time as the x axis"
        )
    samples, used = {}, np.zeros(len(rows), dtype=bool)
    for run, name in runs.items():
        steps = table.get(f"{name.partition(' - ')[0]} - _step", np.full(len(rows), np.nan))
        found = np.column_stack([table["eval/time"], steps, table[name]])
        known = np.isfinite(found[:, [0, 2]]).all(axis=1)
        used |= known
        samples[run] = np.array(sorted(found[known].tolist()))
    if skipped := int(np.sum(~used)):
        warn(f"{path.name}: {skipped} rows hold no time or no value and are skipped")
    return {run: found for run, found in samples.items() if len(found)}


def _float(cell: str | None) -> float:
    try:
        return float(cell) if cell else math.nan
    except ValueError:
        return math.nan
