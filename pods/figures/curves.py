"""The methods of a figure on one time grid: runs x points, gaps as NaN; runs with different
settings are refused."""

import io
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from pods.config.command import SEARCHED, compose, typed
from pods.config.errors import Skipped, UserError
from pods.config.keys import flat, key_has, may_change, typed_as, written
from pods.config.sweeps import evaluate_command
from pods.figures import reading, selection
from pods.figures.figure import (
    GREEDY,
    Absent,
    Figure,
    FigureConfig,
    Series,
    Unlike,
    warn,
    with_folders,
)
from pods.figures.reading import QUANTITIES, Run
from pods.figures.statistics import band, mean_and_error
from pods.files import few
from pods.runs import results

OF_LABELS = ("title", "baseline", "pods", "series")  # of a figure, set by the labels of runs=
OF_AXES = ("checkpoint.every_seconds", "budget.train_seconds")
LONGEST = {"seconds": 600.0, "minutes": 7200.0}  # s of an axis with this unit


def read_all(
    config: FigureConfig, fewest: int = 1, greedy: bool = False
) -> tuple[list[tuple[Figure, list[Series]]], list[str]]:
    """The figures with at least `fewest` methods, and the names left out; Absent if one was asked.
    greedy: each is followed by the same by greedy completions, if two methods have them."""
    wanted = figures(config)
    folder = config.results_dir
    drawable: list[tuple[Figure, list[Series]]] = []
    left_out: list[str] = []
    for figure in wanted:
        try:
            drawable.append((figure, read(figure, folder, left_out, fewest)))
        except Absent as error:
            if len(wanted) == 1:
                raise
            warn(f"{error}; skipped")
            # Absent files are no fault; runs that must not be compared end with exit code 3.
            if isinstance(error, Unlike):
                left_out.append(figure.name)
            continue
        greedily = read_greedy(figure, folder, fewest=2) if greedy else []
        if greedily:
            drawable.append((figure.greedy, greedily))
    return drawable, left_out


def read_greedy(figure: Figure, folder: Path, fewest: int) -> list[Series]:
    """The methods by greedy completions, without the warnings of the sampled ones; [] if too few
    have any."""
    with suppress(Absent), redirect_stderr(io.StringIO()):
        return read(figure.greedy, folder, [], fewest)
    return []


def by_value(figure: Figure, folder: Path, column: str) -> list[tuple[Figure, list[Series]]]:
    """The figure by the questions with each value of a column of the data. Raises UserError without
    such results."""
    whole, greedy, _ = figure.dataset.partition(GREEDY)
    beginning = f"{whole}/{column}="
    paths = results.find(folder, [*chain.from_iterable(m.runs for m in figure.series.values())])
    scores = chain.from_iterable(results.read(path).values() for path in paths)
    names = {name for one in scores for name in one.datasets if name.startswith(beginning)}
    parts = []
    for name in sorted(names, key=results.run_order):
        if name.endswith(GREEDY) == bool(greedy):
            title = name.removeprefix(f"{whole}/").removesuffix(GREEDY)
            part = figure.model_copy(update={"dataset": name, "title": title})
            try:
                with redirect_stderr(io.StringIO()):  # the warnings of the whole figure
                    parts.append((part, read(part, folder, [])))
            except Unlike:
                raise
            except Absent:
                warn(f"{figure.key}: {title} has no scores at an evaluation point; skipped")
    if not parts:
        command = evaluate_command("run=<run>", typed_as("by", column), results_dir=folder)
        raise UserError(
            f"by={column}: no results of {figure.key} have it; to add it without new generation, "
            f"type: {command}"
        )
    return parts


def by_both(figure: Figure, series: list[Series], folder: Path) -> list[Series]:
    """The only method of a figure by sampled completions, and by greedy ones where it has them."""
    method = series[0]
    lines = [replace(method, label=f"{method.label}, sampled")]
    for greedy in read_greedy(figure, folder, fewest=1):
        lines.append(replace(greedy, label=f"{method.label}, greedy", colour=None))
    return lines


def figures(config: FigureConfig) -> list[Figure]:
    """The figures asked for: one, all, or config.runs on the axes of one."""
    figure = config.figure or _named("quickstart")
    if config.runs:
        reason = "beside runs= the labels are the title, and the first one is the baseline"
        refuse_typed(figure, OF_LABELS, f"{reason}; leave it out")
        runs = {
            label: with_folders(names, config.output_dir) for label, names in config.runs.items()
        }
        for setting in selection.read(config.results_dir, runs.pop("")) if "" in runs else ():
            runs[setting.label] = setting.runs
        methods = figure.with_methods(runs)
        if config.figure is None:
            methods = methods.model_copy(update=axes_of(methods, config.results_dir))
        methods = config.applied(methods)
        axes = f"every {methods.grid_seconds:.4g} s to {methods.budget_seconds:.4g} s"
        print(f"runs: {methods.dataset} {methods.metric}, {axes}", file=sys.stderr)
        return [methods]
    if figure.name != "all":
        return [config.applied(figure)]
    reason = "figure=all takes what each figure's file says; name one figure"
    refuse_typed(figure, ("",), f"{reason}, or set metric or dataset")
    paths = chain.from_iterable(folder.glob("figure/[!_]*.yaml") for folder in SEARCHED)
    names = {path.stem for path in paths} - {"all"}
    return [config.applied(_named(name)) for name in sorted(names)]


def refuse_typed(figure: Figure, keys: tuple[str, ...], rule: str) -> None:
    """Raise UserError for a key of a figure that begins with one of `keys`, and differs from the
    figure's file."""
    plain = flat(_named(figure.name).model_dump())
    for key, value in flat(figure.model_dump()).items():
        if key.startswith(keys) and plain.get(key) != value:
            raise UserError(f"figure.{key}={written(value)}: {rule}")


def axes_of(figure: Figure, folder: Path) -> dict[str, Any]:
    """Keys of a figure from the config of the first run that has one: data set, base model, and the
    times at which its checkpoints were saved; of runs that saved by steps, times that fit all."""
    patterns = [*chain.from_iterable(method.runs for method in figure.series.values())]
    paths = results.find(folder, patterns)
    for path in paths:
        with suppress(UserError):  # a broken file is named where the runs are read
            train = flat(results.read_settings(path).train or {})
            if not train:
                continue
            every, end = (train.get(key) for key in OF_AXES)
            measured = measured_axes(paths)
            by_time = isinstance(every, float) and isinstance(end, float)
            if not by_time or measured[1] < every / 2:  # all ended before the first point
                every, end = measured
                print(
                    "evaluation points are those of the slowest run; for others name a figure, and "
                    "set figure.grid_seconds=<s>",
                    file=sys.stderr,
                )
            end = end or figure.budget_seconds
            dataset = only_dataset(paths) or train.get("task.name", figure.dataset)
            return {
                "dataset": dataset,
                "metric": figure.metric if dataset == figure.dataset else "ans_acc",
                "base": [f"base-{train.get('model.name')}"],
                "grid_seconds": every or figure.grid_seconds,
                "budget_seconds": end,
                "time_unit": next((unit for unit in LONGEST if end <= LONGEST[unit]), "hours"),
            }
    return {}


def only_dataset(paths: list[Path]) -> str | None:
    """The one data set of sampled completions that all runs share, as that of a sample of the
    questions; None if they share none or several."""
    held = []
    for path in paths:
        with suppress(UserError):
            scores = results.read(path).values()
            names = chain.from_iterable(one.datasets for one in scores)
            held.append({name for name in names if GREEDY not in name and "/" not in name})
    shared = set.intersection(*held) if held else set()
    return shared.pop() if len(shared) == 1 else None


def measured_axes(paths: Iterable[Path]) -> tuple[float, float]:
    """Seconds between the evaluation points of the slowest run, and of the last point of the
    longest; 0 if no run has measured seconds."""
    every = end = 0.0
    for path in paths:
        with suppress(UserError):
            metas = [scores.meta for scores in results.read(path).values()]
            seconds = sorted(meta["train_seconds"] for meta in metas if "train_seconds" in meta)
            if seconds:
                every = max(every, float(np.median(np.diff([0.0, *seconds]))))
                end = max(end, seconds[-1])
    return every, end


def _named(name: str) -> Figure:
    return typed(Figure, compose("plot", [f"figure={name}"]).figure)


def finish(left_out: list[str]) -> None:
    """Exit code 3 if something was left out; everything else has been shown."""
    if left_out:
        names = ", ".join(dict.fromkeys(left_out))
        raise Skipped(f"left out, for the reasons above: {names}; the rest is done")


def read(figure: Figure, folder: Path, left_out: list[str], fewest: int = 1) -> list[Series]:
    """The methods that have files; Absent if too few have, Unlike if runs must not be compared.
    left_out: gets the names of files and runs that are not used."""
    if not folder.is_dir():
        raise UserError(f"results_dir={folder}: no such folder; evaluate_run.py creates it")
    name = figure.key
    runs = reading.runs(figure, folder, left_out)
    by_method = [(label, run.settings) for label, group in runs.items() for run in group]
    base = {}
    if by_method:
        _, of_first = by_method[0]
        base = reading.base_point(figure, folder, of_first, left_out)
    methods = {
        label: _series(figure, label, group, base, left_out) for label, group in runs.items()
    }
    present = [method for method in methods.values() if method]
    if not present:
        wanted = chain.from_iterable(method.runs for method in figure.series.values())
        advice = "run evaluate_run.py first, or set another results_dir"
        if left_out:
            advice = "the reasons are above"
        raise Absent(
            f"{name}: no usable file in results_dir={folder} matches {', '.join(wanted)}; {advice}"
        )
    if len(present) < fewest:
        raise Absent(f"{name}: only {present[0].label} has results, two methods are needed")
    for key, parts in differences(by_method).items():
        if key == "repeats" or key.startswith("scored."):
            warn(f"{name}: methods differ in {key}: {parts}")
    used = [(method.label, method.runs) for method in present]
    lines = selection.warnings(folder, used)
    for line in lines + selection.tuned([(one.label, one.settings) for one in present]):
        warn(f"{name}: {line}")
    absent = [label for label, method in methods.items() if method is None]
    if absent:
        warn(f"{name}: no results of {', '.join(absent)}; left out")
    if len({method.clock for method in present}) > 1:
        parts = ", ".join(f"{method.clock} of {method.label}" for method in present)
        raise Unlike(
            f"{name}: seconds of two clocks cannot be compared: {parts}; match runs of one clock"
        )
    return present


def to_json(series: list[Series]) -> dict[str, Any]:
    """The content of curves.json; points without any run are absent."""
    content = {}
    for method in series:
        at_start = mean_and_error(method.start("value")[:, None])
        at_points = mean_and_error(method.quantities["value"])
        mean, error, runs = map(np.concatenate, zip(at_start, at_points, strict=True))
        hours = np.concatenate([[0.0], method.hours])
        known = runs > 0
        ends = np.full((len(hours), 2), np.nan)  # of the band that is drawn
        _, drawn = method.from_start("value")
        ends[-drawn.shape[1] :] = np.transpose(band(drawn, 1))
        content[method.label] = {
            "time_hours": hours[known].tolist(),
            "mean": mean[known].tolist(),
            "sem": error[known].tolist(),
            "ci95": [pair if np.isfinite(pair).all() else None for pair in ends[known].tolist()],
            "n_runs": runs[known].tolist(),
        }
    return {"series": content}


def _series(
    figure: Figure, label: str, runs: list[Run], base: dict[str, float], left_out: list[str]
) -> Series | None:
    """One method; None without a usable run."""
    used = []
    for run in runs:
        if np.isfinite(run.quantities["value"]).any():
            used.append(run)
        else:
            left_out.append(run.name)
            warn(
                f"{run.name}: has no {figure.dataset} {figure.metric} at an evaluation point "
                f"(every figure.grid_seconds={figure.grid_seconds:g} to figure.budget_seconds="
                f"{figure.budget_seconds:g}); the run is left out: set these two keys"
            )
    if not used:
        return None
    _compare_settings(figure, label, used)
    used.sort(key=lambda run: run.settings.get("seed", 0))  # published runs stay as they are
    ends = pandas.Series(  # the last point of each run
        {run.name: run.quantities["seconds"].last_valid_index() for run in used if run.measured},
        dtype=float,
    )
    if ends.max() > ends.min():
        warn(f"{ends.idxmin()}: ends first of {label}, whose mean is drawn up to there")
    method = figure.series[label]
    return Series(
        label=label,
        colour=method.colour,
        runs=[run.name for run in used],
        quantities={q: np.stack([run.quantities[q] for run in used]) for q in QUANTITIES},
        hours=figure.grid / 3600,
        measured=all(run.measured for run in used),
        seconds_per_step=None if any(run.measured for run in used) else method.seconds_per_step,
        base=base,
        first=[run.first for run in used if run.first],
        seeds=[run.settings.get("seed") for run in used],
        settings=used[0].settings,
    )


def _compare_settings(figure: Figure, label: str, runs: list[Run]) -> None:
    """Warn of the settings in which a method's runs differ; Unlike if they are ours and must not be
    averaged."""
    ours = all("seed" in run.settings for run in runs)
    for key, parts in differences([(run.name, run.settings) for run in runs]).items():
        is_like = key_has("alike", key) or key == "repeats" or key.startswith("scored.")
        if key not in ("seed", "run", "git_commit") and (is_like or not may_change(key)):
            difference = f"{figure.key}: runs of {label} differ in {key}: {parts}"
            if ours and is_like:
                raise Unlike(f"{difference}; compare them as methods: runs={{A: [...], B: [...]}}")
            warn(f"{difference}; averaged")


def differences(settings: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """For each key with several values: the values, and who has each. settings: (name, values)."""
    by_key: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, values in settings:
        for key, value in values.items():  # null is a value
            shown = Path(value).name if key == "model.path" else value  # of any folder
            by_key[key][json.dumps(shown)].append(name)
    return {
        key: "; ".join(f"{value} in {few(dict.fromkeys(names))}" for value, names in own.items())
        for key, own in by_key.items()
        if len(own) > 1
    }
