"""The authors' published results as results files that plot.py, speedup.py and report.py read.

    uv run scripts/import_published.py folder=<the authors' results>
    uv run scripts/plot.py figure=gsm8k_main results_dir=results/published
docs/paper.md says where the authors' folder is. Their files of runs hold no times: the i-th
checkpoint is i intervals old. An aborted attempt or a lost file would shift the curve; both show in
the step increments, equal in a healthy run. A wandb export becomes a file for each run.
"""

import json
import math
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas

from pods.config.command import command
from pods.config.errors import Skipped, UserError
from pods.config.keys import Location, Section
from pods.figures.figure import warn
from pods.figures.reading import at_points
from pods.files import few, write_atomic
from pods.runs import results
from pods.runs.results import Published, Results, Scores

INTERVALS = {"Instruct-Llama-*": 600.0, "Instruct-*": 1800.0}  # s from checkpoint to checkpoint
COMPLETE = 12  # checkpoints of a run
EXPORT = "-acc.csv"  # ends the name of an export's accuracies; its lengths: -length.csv
EXPORT_REACH = 420.0  # s, the longest pause between exported samples
DATASET = "gsm8k"  # of the exports
SHORT, LONG = 0.6, 1.7  # increments outside these multiples of the run's median are suspect
MOST_STALE = 4  # beyond this no subset is trustworthy; the limit also bounds the search
# A run's column `data/<run> - <metric>`; wandb adds the copies __MIN and __MAX.
VALUE = re.compile(r"(?:data/)?(?P<run>\S+) - (?!_step).+(?<!__MIN)(?<!__MAX)")
Imported = tuple[str, Results | Scores, Published]  # name of the file, its content, its times


class ImportConfig(Section):
    """The keys of config/import_published.yaml."""

    folder: Location
    results_dir: Location


@command("import_published", ImportConfig)
def main(config: ImportConfig) -> None:
    """Read all files, then write them."""
    folder, results_dir = config.folder, config.results_dir
    if not folder.is_dir():
        raise UserError(f"folder={folder}: no such folder; docs/paper.md says where it is")
    if folder.resolve() == results_dir.resolve():
        raise UserError(f"results_dir={results_dir}: is the authors' folder; set another one")
    left_out: list[str] = []
    imported = [*read_all(folder, left_out)]
    if not imported:
        raise UserError(f"folder={folder}: has none of the authors' files, such as h100s-acc.csv")
    for name, _, _ in imported:
        path = results_dir / f"{name}.json"
        if path.exists() and results.read_settings(path).published is None:
            raise UserError(
                f"results_dir={results_dir}: {path.name} is a run of yours; set another"
            )
    for name, content, published in imported:
        path = results_dir / f"{name}.json"
        facts = {"published": published.model_dump()}
        write_atomic(path.with_suffix(".meta.json"), json.dumps(facts) + "\n")
        results.write(path, content)
    print(
        f"{results_dir}: {len(imported)} files; "
        f"next: uv run scripts/plot.py figure=all results_dir={results_dir}"
    )
    if left_out:
        raise Skipped(f"left out, for the reasons above: {few(left_out)}; the rest is done")


def read_all(folder: Path, left_out: list[str]) -> Iterator[Imported]:
    """Runs, base models and exports of the folder. left_out: gets the names of unusable files."""
    for path in sorted(folder.glob("*.json"), key=lambda path: results.run_order(path.stem)):
        intervals = (INTERVALS[names] for names in INTERVALS if fnmatchcase(path.stem, names))
        interval = next(intervals, None)
        try:
            if path.stem.startswith("base-"):
                yield path.stem, results.read_base(path), Published()
            elif interval:
                yield path.stem, timed(path, interval), Published(by_index=True)
            else:
                raise UserError(f"{path}: has no name of a published run")
        except UserError as error:
            warn(f"{error}; left out")
            left_out.append(path.name)
    for path in sorted(folder.glob(f"*{EXPORT}")):
        try:
            for run, content in exported(path).items():
                yield run, content, Published(reach=EXPORT_REACH)
        except UserError as error:
            warn(f"{error}; left out")
            left_out.append(path.name)


def timed(path: Path, interval: float) -> Results:
    """The checkpoints of a run that belong to one attempt, with their train_seconds."""
    content = results.read(path)
    points = by_index(path.stem, [*content], COMPLETE)
    own = {}
    for (step, scores), point in zip(content.items(), points, strict=True):
        if math.isfinite(point):
            scores.meta = {"train_seconds": interval * point}
            own[step] = scores
    if not own:
        raise UserError(f"{path}: has no usable checkpoint")
    return own


def exported(path: Path) -> dict[str, Results]:
    """run -> its samples as checkpoints, and its first one also as checkpoint-0: the published
    curves begin with it."""
    lengths_path = path.with_name(path.name.removesuffix(EXPORT) + "-length.csv")
    if not lengths_path.is_file():
        raise UserError(f"{lengths_path}: no such file; the export has two")
    accuracies, lengths = read_csv(path), read_csv(lengths_path)
    one_file = sorted(accuracies.keys() ^ lengths.keys())
    if one_file:
        warn(f"{few(one_file)}: only in one file of the export; left out")
    runs = {}
    for run in sorted(accuracies.keys() & lengths.keys(), key=results.run_order):
        samples = accuracies[run]
        nearest = at_points(lengths[run], samples["seconds"], math.inf)["value"]
        content: Results = {}
        rows = zip(samples["steps"], samples["seconds"], samples["value"], nearest, strict=True)
        for step, seconds, accuracy, length in rows:
            scores = {DATASET: {"ans_acc": [accuracy], "lengths": [length]}}
            if not content:
                content[0] = Scores.model_validate(scores | {"meta": {"train_seconds": 0.0}})
            content[round(step)] = Scores.model_validate(
                scores | {"meta": {"train_seconds": seconds}}
            )
        runs[run] = content
    return runs


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


def read_csv(path: Path) -> dict[str, pandas.DataFrame]:
    """run -> its complete rows by time: seconds, optimiser steps, value; the file has
    `data/<run> - _step` in micro-steps (ga per optimiser step)."""
    try:
        table = pandas.read_csv(path, encoding="utf-8-sig")  # exact from pandas 3.1 on
    except ValueError as error:
        raise UserError(f"{path}: not a CSV file ({error})") from None
    table = table.apply(pandas.to_numeric, errors="coerce").astype(float)
    runs = {match["run"]: match.string for match in map(VALUE.fullmatch, table) if match}
    if "eval/time" not in table or not runs:
        raise UserError(f"{path}: no column eval/time or no column 'data/<RUN> - <metric>'")
    samples = {}
    for run, name in runs.items():
        accumulation = re.search(r"-ga(\d+)|$", run)[1]
        micro_steps = table[f"{name.partition(' - ')[0]} - _step"]
        rows = pandas.DataFrame(
            {
                "seconds": table["eval/time"],
                "steps": micro_steps / int(accumulation or 1),
                "value": table[name],
            }
        )
        rows = rows.dropna().sort_values([*rows], ignore_index=True)
        if len(rows):
            samples[run] = rows
    return samples


if __name__ == "__main__":
    main()
