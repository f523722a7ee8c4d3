"""Results files as runs on a figure's time grid; train_seconds give a checkpoint its time."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from pods.config.errors import UserError
from pods.config.keys import flat
from pods.figures.figure import Figure, warn
from pods.files import few
from pods.runs import results
from pods.runs.results import Entry, Published, Results, Scores

QUANTITIES = ("value", "length", "seconds", "steps")
# Settings of an evaluation that change a score by rounding and draws alone.
NEUTRAL = ("engine", "seed", "dtype", "load_in_4bit")


@dataclass(frozen=True, eq=False)
class Run:
    """One run on the figure's grid: a row for each point, NaN for gaps; lengths in tokens."""

    name: str
    quantities: pandas.DataFrame
    measured: bool  # else seconds are those of the published grid
    settings: dict[str, Any]  # of training and evaluation; published files have none
    first: dict[str, float] = field(default_factory=dict)  # checkpoint-0, in a figure without base


class Untimed(UserError):
    """A file without train_seconds."""


def runs(figure: Figure, folder: Path, left_out: list[str]) -> dict[str, list[Run]]:
    """label -> runs. left_out: gets the names of files that are not used. Raises UserError if the
    files are the authors' own, which have no times."""
    methods: dict[str, list[Run]] = {}
    errors: dict[str, UserError] = {}  # by name of the file
    for label, method in figure.series.items():
        methods[label] = []
        for path in results.find(folder, method.runs):
            try:
                methods[label].append(_from_file(path, results.read(path), figure))
            except UserError as error:
                errors[path.name] = error
    untimed = [error for error in errors.values() if isinstance(error, Untimed)]
    if not any(methods.values()) and (untimed or [*folder.glob("?100s-acc.csv")]):
        raise UserError(
            f"results_dir={folder}: has published files without train_seconds; import them: uv run "
            f"scripts/import_published.py folder={folder}, then set results_dir=results/published"
        )
    for name, error in errors.items():
        warn(f"{error}; the run is left out")
        left_out.append(name)
    return methods


def base_point(
    figure: Figure, folder: Path, settings: dict[str, Any], left_out: list[str]
) -> dict[str, float]:
    """Accuracy and length of the first base file that has the figure's metric, and was scored as
    the run with these settings; {} without one."""
    paths = (path for pattern in figure.base for path in results.base_files(folder, pattern))
    others: list[str] = []  # why files are not used
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
        differences = sorted(
            f"{key}={value}, there {settings[key]}"
            for key, value in how_scored(path, figure.dataset, [base]).items()
            if settings.get(key, value) != value
        )
        if not differences and math.isfinite(point["value"]):
            return point
        others.append(f"{path.stem}: {few(differences) or f'no {figure.dataset} {figure.metric}'}")
    for other in others:
        warn(f"{other}; no point at time 0")
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
    """A results file on the figure's grid. Raises UserError if it cannot be used."""
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
    if not samples["seconds"].notna().any():
        raise Untimed(f"{path.stem}: has no train_seconds; evaluate the run again")
    if figure.metric.startswith("pass@") and not samples["value"].notna().any():
        k = figure.metric.removeprefix("pass@")
        raise UserError(
            f"{path.stem}: has no {figure.dataset} {figure.metric}; evaluate it with repeats={k} "
            f"pass_at=[{k}], or set another metric"
        )
    first = {}
    if 0 in content and figure.base:
        warn(f"{path.stem}: checkpoint-0 is dropped; time 0 is the base file's")
    elif 0 in content:
        first = _point(content[0], figure)
    facts = results.read_settings(path)
    published = facts.published or Published()
    rows = at_points(samples, figure.grid, max(figure.grid_seconds / 2, published.reach))
    warn_of_gaps(path.stem, rows, figure.grid, samples["seconds"].max())
    # What the runs of one method must share: the config, and how they were scored.
    settings = flat(facts.train or {}) | {"git_commit": facts.git_commit}
    for key, kind in (("seed", int), ("model.path", str)):
        if not isinstance(settings.get(key, kind()), kind):
            raise UserError(
                f"{path.stem}.meta.json: train.{key}={settings[key]!r:.40} has another type"
            )
    settings["repeats"] = max(len(entry.lengths or entry.ans_acc) for entry in entries if entry)
    settings |= how_scored(path, figure.dataset, content.values())
    return Run(path.stem, rows, not published.by_index, settings, first)


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
