"""Result files, or a wandb export, as runs on a figure's time grid.

Measured train_seconds give a checkpoint its time. Published files have none: the i-th checkpoint is
i grid intervals old. An aborted attempt or a lost file would shift the curve; both show in the
step increments, equal in a healthy run.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from pods.config.errors import UserError
from pods.config.keys import flat
from pods.figures.figure import Absent, Figure, warn
from pods.files import few
from pods.runs import results
from pods.runs.results import Entry, Results, Scores

QUANTITIES = ("value", "length", "seconds", "steps")
EXPORT_REACH = 420.0  # s, the longest pause between exported samples
SHORT, LONG = 0.6, 1.7  # increments outside these multiples of the run's median are suspect
MOST_STALE = 4  # beyond this no subset is trustworthy; the limit also bounds the search
# Settings of an evaluation that change a score by rounding and draws alone.
NEUTRAL = ("engine", "seed", "dtype", "load_in_4bit")
# A run's column `data/<run> - <metric>`; wandb adds the copies __MIN and __MAX.
VALUE = re.compile(r"(?:data/)?(?P<run>\S+) - (?!_step).+(?<!__MIN)(?<!__MAX)")


@dataclass(frozen=True, eq=False)
class Run:
    """One run on the figure's grid: a row for each point, NaN for gaps; lengths in tokens."""

    name: str
    quantities: pandas.DataFrame
    measured: bool  # seconds are train_seconds of the file
    settings: dict[str, Any]  # of training and evaluation; published files have none
    first: dict[str, float] = field(default_factory=dict)  # exported: drawn at time 0 too


def runs(figure: Figure, folder: Path, left_out: list[str]) -> dict[str, list[Run]]:
    """label -> runs, from the wandb export if it exists, else from results/<run>.json. left_out:
    gets the names of files that are not used."""
    if any((folder / name).is_file() for name in figure.wandb_export or ()):
        return _from_export(figure, folder)
    methods: dict[str, list[Run]] = {}
    for label, method in figure.series.items():
        methods[label] = []
        for path in results.find(folder, method.runs):
            try:
                methods[label].append(_from_file(path, results.read(path), figure))
            except UserError as error:
                warn(f"{error}; the run is left out")
                left_out.append(path.name)
    return methods


def base_point(
    figure: Figure, folder: Path, settings: dict[str, Any], left_out: list[str]
) -> dict[str, float]:
    """Accuracy and length of the first base file that has the figure's metric, and was scored as
    the run with these settings; {} without one."""
    paths = (path for pattern in figure.base for path in results.find(folder, [pattern]))
    for path in dict.fromkeys(paths):  # in the order of the patterns
        try:
            base = results.read_base(path)
            details = results.read_settings(path).details
        except UserError as error:
            warn(f"{error}; not used")
            left_out.append(path.name)
            continue
        # evaluate_run.py stores pass@k of a base model beside its file, whose schema has no place
        base.meta = base.meta or details or {}
        point = _point(base, figure)
        others = {
            f"{key}={value}, there {settings[key]}"
            for key, value in how_scored(path, figure.dataset, [base]).items()
            if settings.get(key, value) != value
        }
        if others:
            warn(f"{path.stem}: {few(sorted(others))}; no point at time 0")
        elif math.isfinite(point["value"]):
            return point
        else:
            warn(f"{path.stem}: no {figure.dataset} {figure.metric}; no point at time 0")
    return {}


def how_scored(path: Path, dataset: str, scores: Iterable[Scores]) -> dict[str, Any]:
    """The settings of an evaluation, from the facts beside its file, and the graders of its scores;
    published files have none."""
    settings = (results.read_settings(path).tasks or {}).get(dataset, {})
    details = [one.meta.get("scores", {}).get(dataset) for one in scores]
    graders = [next(iter(found["rewards"])) for found in details if found and found.get("rewards")]
    if graders:
        settings = {**settings, "rewards": " and ".join(sorted(set(graders)))}
    return {f"scored.{key}": value for key, value in settings.items() if key not in NEUTRAL}


def at_points(samples: pandas.DataFrame, grid: np.ndarray, reach: float) -> pandas.DataFrame:
    """A row for each time of the grid, (points,) s: the sample nearest to it, all NaN without one
    within `reach` s. The later end of the reach belongs to the next point."""
    samples = samples.dropna(subset="seconds").sort_values("seconds", kind="stable")
    points = pandas.DataFrame({"point": grid})
    rows = pandas.merge_asof(
        points, samples, left_on="point", right_on="seconds", direction="nearest", tolerance=reach
    )
    return rows.where(rows["seconds"] < rows.pop("point") + reach)


def _from_file(path: Path, content: Results, figure: Figure) -> Run:
    """A result file with its train_seconds, or without any with those of the published grid."""
    entries = [scores.datasets.get(figure.dataset) for scores in content.values()]
    if not any(entries):
        held = few(sorted({name for scores in content.values() for name in scores.datasets}))
        raise UserError(
            f"{path.stem}: no data set {figure.dataset} but {held or 'none'}; set dataset to one "
            "of them, or evaluate the run on the other"
        )
    steps = [step for step in content if step > 0]
    points = []
    for step in steps:
        seconds = _mean([content[step].meta.get("train_seconds")])
        points.append(_point(content[step], figure) | {"seconds": seconds, "steps": step})
    samples = pandas.DataFrame(points, columns=QUANTITIES, dtype=float)
    if 0 in content:
        warn(f"{path.stem}: checkpoint-0 is dropped; time 0 is the base file's")
    measured = bool(samples["seconds"].notna().any())
    end = samples["seconds"].max()
    if not measured:
        points = by_index(path.stem, steps, figure.checkpoints or len(steps))
        samples["seconds"] = figure.grid_seconds * points
        end = 0.0
    rows = at_points(samples, figure.grid, figure.grid_seconds / 2)
    warn_of_gaps(path.stem, rows, figure.grid, end)
    # What the runs of one method must share: the config, and how they were scored.
    facts = results.read_settings(path)
    settings = flat(facts.train or {}) | {"git_commit": facts.git_commit}
    for key, kind in (("seed", int), ("model.path", str)):
        if not isinstance(settings.get(key, kind()), kind):
            raise UserError(
                f"{path.stem}.meta.json: train.{key}={settings[key]!r:.40} has another type"
            )
    settings["repeats"] = max(len(entry.lengths or entry.ans_acc) for entry in entries if entry)
    settings |= how_scored(path, figure.dataset, content.values())
    return Run(path.stem, rows, measured, settings)


def _from_export(figure: Figure, folder: Path) -> dict[str, list[Run]]:
    """label -> runs, from the two files of the wandb export."""
    key = f"figure={figure.name}"
    if figure.metric != "ans_acc":
        raise UserError(f"metric={figure.metric}: the export of {key} holds only ans_acc")
    for name in figure.wandb_export:
        if not (folder / name).is_file():
            raise Absent(
                f"{key}: results_dir={folder} has no {name}; set results_dir to the folder with "
                "both files"
            )
    accuracies, lengths = (read_csv(folder / name) for name in figure.wandb_export)
    one_file = sorted(accuracies.keys() ^ lengths.keys())
    if one_file:
        warn(f"{few(one_file)}: only in one file of the export; left out")
    runs = []
    for name in sorted(accuracies.keys() & lengths.keys(), key=results.run_order):
        samples = at_points(lengths[name], accuracies[name]["seconds"], math.inf)
        samples = accuracies[name].assign(length=samples["value"])
        rows = at_points(samples, figure.grid, EXPORT_REACH)
        warn_of_gaps(name, rows, figure.grid, math.inf)
        runs.append(Run(name, rows, False, {}, samples.iloc[0].to_dict()))
    methods = {}
    for label, method in figure.series.items():
        methods[label] = [run for run in runs if any(fnmatchcase(run.name, p) for p in method.runs)]
        unused = [path.stem for path in results.find(folder, method.runs)]
        if unused:
            warn(f"{key}: drawn from its export, without {few(unused)} of {label}")
    return methods


def warn_of_gaps(run: str, rows: pandas.DataFrame, grid: np.ndarray, end: float) -> None:
    """Name the irregularities of the rows at the grid times, up to `end` s."""
    known = rows["seconds"].notna()
    empty = grid[~known & (grid < end)]
    blank = rows["steps"][known & rows["value"].isna()]
    if len(empty):
        warn(f"{run}: no checkpoint near {few(empty)} s; these evaluation points stay empty")
    if len(blank):
        warn(f"{run}: no value at steps {few(blank)}; left empty")


def _point(checkpoint: Scores, figure: Figure) -> dict[str, float]:
    """Value and length of one checkpoint; NaN if the file has none."""
    entry = checkpoint.datasets.get(figure.dataset, Entry())
    name, _, k = figure.metric.partition("@")
    if name == "pass":
        values = [checkpoint.meta.get("pass@k", {}).get(figure.dataset, {}).get(k)]
    else:
        values = getattr(entry, figure.metric)
    return {"value": _mean(values), "length": _mean(entry.lengths)}


def _mean(values: list[Any]) -> float:
    """Mean of the finite numbers; NaN without any."""
    finite = [float(x) for x in values if isinstance(x, int | float) and math.isfinite(x)]
    return float(np.mean(finite)) if finite else math.nan


def by_index(run: str, steps: list[int], expected: int) -> np.ndarray:
    """Grid point (1, 2, ...) or NaN of each ascending step; a warning names each decision."""
    points = np.arange(1.0, len(steps) + 1)
    if len(steps) == expected or not steps:
        return points
    stale = _stale(steps) if len(steps) > expected else ()  # indices of an aborted attempt
    if stale is None:
        warn(
            f"{run}: {len(steps)} checkpoints where {expected} are expected, at increments that "
            "fit no single attempt; the run is left out"
        )
        return np.full(len(steps), np.nan)
    own = np.delete(np.array(steps), stale)
    jumps = np.ones(len(own))  # points from one checkpoint to the next
    if len(own) < expected:
        relative = _relative(own)
        jumps = np.where(relative > LONG, relative.round(), 1.0)
    points[list(stale)] = np.nan
    points[~np.isnan(points)] = np.cumsum(jumps)
    if stale:
        dropped = few(steps[i] for i in stale)
        warn(f"{run}: steps {dropped} are left from an aborted attempt and are dropped")
    if jumps.max() > 1:
        late = few(own[jumps > 1].tolist())
        warn(f"{run}: a checkpoint is missing before step {late}; its point stays empty")
    count = f"{run}: {np.nanmax(points):g} checkpoints where {expected} are expected"
    if np.nanmax(points) < expected:
        warn(f"{count}; the curve ends early")
    if np.nanmax(points) > expected:
        warn(f"{count}; the first {expected} count")
    return points


def read_csv(path: Path) -> dict[str, pandas.DataFrame]:
    """run -> its complete rows by time: seconds, optimiser steps, value; the file has
    `data/<run> - _step` in micro-steps (ga per optimiser step)."""
    try:
        table = pandas.read_csv(path, encoding="utf-8-sig")  # exact from pandas 3.1 on
    except ValueError as error:
        raise UserError(f"{path}: not a CSV file ({error}); export the runs again") from None
    table = table.apply(pandas.to_numeric, errors="coerce").astype(float)
    runs = {match["run"]: match.string for match in map(VALUE.fullmatch, table) if match}
    if "eval/time" not in table or not runs:
        raise UserError(
            f"{path}: no column eval/time or no column 'data/<RUN> - <metric>'; export the runs "
            "from wandb with eval/time as the x axis"
        )
    samples = {}
    for run, name in runs.items():
        accumulation = re.search(r"-ga(\d+)|$", run)[1]
        steps = table.get(f"{name.partition(' - ')[0]} - _step", np.nan) / int(accumulation or 1)
        rows = pandas.DataFrame(
            {"seconds": table["eval/time"], "steps": steps, "value": table[name]}
        )
        rows = rows.dropna(subset=["seconds", "value"]).sort_values([*rows], ignore_index=True)
        if len(rows):
            samples[run] = rows
    return samples


def _stale(steps: list[int]) -> tuple[int, ...] | None:
    """Fewest checkpoints to drop so that no increment is short, and the rest is most even."""
    for count in range(min(MOST_STALE, len(steps) - 2) + 1):
        relative = {
            drop: _relative(np.delete(steps, drop))
            for drop in combinations(range(len(steps)), count)
        }
        even = [drop for drop, increments in relative.items() if increments.min() >= SHORT]
        if even:
            return min(even, key=lambda drop: np.sum(np.log(relative[drop]) ** 2))
    return None


def _relative(steps: np.ndarray) -> np.ndarray:
    """The step increments over their median."""
    increments = np.diff(steps, prepend=0)
    return increments / np.median(increments)
