"""Result files, or a wandb export, as samples of runs; runs that must not be averaged are refused.

Measured train_seconds give a checkpoint its time; published files have the checkpoint's index.
    uv run scripts/plot.py figure=quickstart
"""

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from pods.config.errors import UserError
from pods.figures import published
from pods.figures.figure import Absent, Figure, Note, Unlike, settings
from pods.figures.published import listed
from pods.runs.results import Checkpoint, Entry, Results, facts_of, facts_path, find, read_base
from pods.runs.results import read as read_results

QUANTITIES = ("value", "length", "seconds", "steps", "tokens_generated", "tokens_trained")
EXPORT_REACH = 420.0  # s, the longest pause between exported samples
# Keys of the training config, and of the evaluation, in which the runs of one arm must agree.
LIKE = (
    "budget.train_seconds", "max_steps", "task.name", "task.source", "model.name", "model.path",
    "prompts_per_step", "optimizer.learning_rate", "clock.name", "repeats", "questions",
)  # fmt: skip


@dataclass(frozen=True)
class Samples:
    """One run. Quantities are (samples,) arrays with NaN for gaps; lengths in tokens."""

    name: str
    quantities: dict[str, np.ndarray]
    reach: float  # s: a mark of the grid takes the nearest sample within this distance
    measured: bool  # seconds are train_seconds of the file
    expected_until: float  # s: an empty mark up to here is reported
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # of training and evaluation, if known

    @property
    def seed(self) -> int | None:
        """The seed of training, from the settings or the name; published runs have none."""
        named = re.search(r"seed(\d+)", self.name)
        return self.settings.get("seed", int(named[1]) if named else None)


def runs(figure: Figure, folder: Path) -> tuple[dict[str, list[Samples]], list[Note]]:
    """label -> runs, from the wandb export where it exists, else from results/<run>.json."""
    export = figure.wandb_export
    if export and any((folder / name).is_file() for name in (export.accuracy, export.length)):
        return _from_export(figure, folder)
    files = {label: find(folder, arm.runs) for label, arm in figure.series.items() if arm}
    results, notes = {}, []
    for path in dict.fromkeys(path for paths in files.values() for path in paths):
        try:
            results[path] = read_results(path)
            problem = "" if results[path] else f"{path.stem}: has no checkpoint"
        except UserError as error:
            problem = str(error)
        if problem:
            notes.append(Note(f"{problem}; the run is left out", path.name))
    counts = Counter(len(run) for run in results.values() if run)
    expected = figure.checkpoints or (counts.most_common(1)[0][0] if counts else 0)
    return {
        label: [_samples(p, results[p], figure, expected) for p in paths if results.get(p)]
        for label, paths in files.items()
    }, notes


def differences(figure: Figure, label: str, runs: list[Samples]) -> list[Note]:
    """The settings in which published runs of one arm differ; raises Unlike where ours do."""
    notes = []
    for key in LIKE:
        names: dict[str, list[str]] = {}
        for run in (run for run in runs if key in run.settings):  # null is a value
            value = run.settings[key]
            value = Path(value).name if key == "model.path" else value  # of any folder
            names.setdefault(json.dumps(value), []).append(run.name)
        if len(names) > 1:
            parts = "; ".join(f"{value} in {listed(group)}" for value, group in names.items())
            line = f"figure={figure.name}: runs of {label} differ in {key}: {parts}"
            if all("seed" in run.settings for run in runs):
                raise Unlike(f"{line}; compare them as arms: runs={{A: [...], B: [...]}}")
            notes.append(Note(f"{line}; averaged, because published files do not say why"))
    return notes


def base_point(figure: Figure, folder: Path) -> tuple[dict[str, float], list[Note]]:
    """Accuracy and length of the first base file that has the figure's metric; {} without one."""
    paths, notes = [path for pattern in figure.base for path in find(folder, [pattern])], []
    for path in dict.fromkeys(paths):  # in the order of the patterns
        try:
            base = read_base(path)
        except UserError as error:
            notes.append(Note(f"{error}; not used", path.name))
            continue
        # evaluate_run.py stores pass@k of a base model beside its file, whose schema has no place
        details = facts_of(facts_path(path)).get("details") or {}
        values = _point(Checkpoint(base.datasets, base.meta or details), figure)
        if math.isfinite(values["value"]):
            return {"value": values["value"], "length": values["length"]}, notes
        text = f"{path.stem}: no {figure.dataset} {figure.metric}; no point at time 0"
        notes.append(Note(text))
    return {}, notes


def nearest(seconds: np.ndarray, grid: np.ndarray, reach: float) -> np.ndarray:
    """Index of the sample nearest to each grid time, (marks,), -1 where none is within `reach` s.

    seconds: (samples,), NaN where unknown. The later end of the reach belongs to the next mark.
    """
    if not np.isfinite(seconds).any():
        return np.full(len(grid), -1)
    offset = seconds[None, :] - grid[:, None]  # (marks, samples)
    offset = np.where((offset >= -reach) & (offset < reach), np.abs(offset), np.inf)
    return np.where(np.isfinite(offset).any(axis=1), offset.argmin(axis=1), -1)


def _samples(path: Path, results: Results, figure: Figure, expected: int) -> Samples:
    """A result file: its train_seconds, or where it has none those of the published grid.

    expected: checkpoints of a complete published run.
    """
    steps = [step for step in results if step > 0]
    points = [_point(results[step], figure) | {"steps": float(step)} for step in steps]
    quantities = {q: np.array([p[q] for p in points]) for q in QUANTITIES}
    notes = ["checkpoint-0 is dropped; time 0 is the base file's"] if 0 in results else []
    timed, end = np.isfinite(quantities["seconds"]), 0.0
    if timed.any():
        end = float(np.nanmax(quantities["seconds"]))
        if missing := [step for step, known in zip(steps, timed, strict=True) if not known]:
            notes.append(f"steps {listed(missing)} have no train_seconds and are left out")
    else:
        marks = published.by_index(steps, expected)
        notes += published.remarks(steps, marks, expected)
        quantities["seconds"] = figure.grid_seconds * np.array([m or math.nan for m in marks])
    facts = settings(path, results, figure.dataset)
    reach, measured = figure.grid_seconds / 2, bool(timed.any())
    return Samples(path.stem, quantities, reach, measured, end, notes, facts)


def _from_export(figure: Figure, folder: Path) -> tuple[dict[str, list[Samples]], list[Note]]:
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
    tables, notes = published.export(*paths)
    patterns = {label: arm.runs for label, arm in figure.series.items() if arm}
    every = [pattern for group in patterns.values() for pattern in group]
    if unused := [path.stem for path in find(folder, every)]:
        text = f"figure {figure.name}: drawn from {paths[0].name}, without {listed(unused)}"
        notes.append(Note(f"{text}; to draw these, move them to another folder"))
    samples = []
    for name, (accuracy, length) in tables.items():
        quantities = dict.fromkeys(QUANTITIES, np.full(len(accuracy), np.nan))
        quantities |= dict(zip(("seconds", "steps", "value"), accuracy.T, strict=True))
        quantities["length"] = length[nearest(length[:, 0], accuracy[:, 0], math.inf), 2]
        samples.append(Samples(name, quantities, EXPORT_REACH, False, math.inf))
    return {
        label: [run for run in samples if any(fnmatchcase(run.name, p) for p in wanted)]
        for label, wanted in patterns.items()
    }, notes


def _point(checkpoint: Checkpoint, figure: Figure) -> dict[str, float]:
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


def _entry(checkpoint: Checkpoint, figure: Figure) -> Entry:
    return checkpoint.datasets.get(figure.dataset, Entry())


def _finite(values: list[Any]) -> list[float]:
    return [float(x) for x in values if isinstance(x, (int, float)) and math.isfinite(x)]


def _mean(values: list[Any]) -> float:
    """Mean of the finite values; NaN without any."""
    finite = _finite(values)
    return float(np.mean(finite)) if finite else math.nan
