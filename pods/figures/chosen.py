"""Which figures a command was asked for: one, all, or any runs without a figure's file.

Used by `uv run scripts/plot.py` and `uv run scripts/speedup.py`.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hydra import compose
from hydra.core.hydra_config import HydraConfig

from pods.config.command import CONFIG_DIR, typed
from pods.config.errors import Skipped, UserError
from pods.figures.definition import Absent, Figure, FigureSeries, Unlike
from pods.figures.samples import settings
from pods.runs.results import find, read, warn

Result = TypeVar("Result")


def each(
    name: str, config: Any, work: Callable[[Any, list[str]], Result]
) -> tuple[list[Result], list[str]]:
    """work(config, skipped) of every figure asked for, and the files and figures left out.

    name: of the command's YAML file. With figure=all, figures without results are no loss. metric
    and dataset of the command replace those of the figure.
    """
    configs, every = [config], config.figure.name == "all"
    given = HydraConfig.get().overrides.task
    if config.runs:
        chosen = any(override.startswith("figure=") for override in given)
        config.figure = of_runs(config, config.figure, config.dataset, chosen)
    elif every:
        given = [override for override in given if not override.startswith("figure=")]
        files = sorted((CONFIG_DIR / "figure").glob("[!_]*.yaml"))
        names = [file.stem for file in files if file.stem != "all"]
        composed = [compose(name, [*given, f"figure={figure}"]) for figure in names]
        configs = [typed(type(config), one) for one in composed]
    done, skipped = [], []
    for one in configs:
        one.figure.metric = one.metric or one.figure.metric
        one.figure.dataset = one.dataset or one.figure.dataset
        try:
            done.append(work(one, skipped))
        except (Absent, Unlike) as error:
            if not every:
                raise
            warn(f"{error}; skipped")
            skipped += [one.figure.name] * isinstance(error, Unlike)
    return done, skipped


def finish(skipped: list[str]) -> None:
    """Exit code 3 where something was left out; everything else has been shown."""
    if skipped:
        names = ", ".join(dict.fromkeys(skipped))
        raise Skipped(f"left out, for the reasons above: {names}; the rest is done")


def of_runs(config: Any, figure: Figure, dataset: str | None, chosen: bool) -> Figure:
    """The figure of config.runs={A: [patterns], B: [patterns]} in config.results_dir.

    chosen: `figure` gives its axes, else the files do.
    """
    patterns = [pattern for group in config.runs.values() for pattern in group]
    paths = find(config.results_dir, patterns)
    if not paths:
        listed = ", ".join(patterns)
        raise UserError(f"runs={listed}: no file of results_dir={config.results_dir} matches")
    first, second, *_ = [*config.runs, None, None]
    return replace(
        figure,
        name="runs",
        title=", ".join(config.runs),
        baseline=first,
        pods=second,
        wandb_export=None,
        series={label: FigureSeries(group) for label, group in config.runs.items()},
        **({} if chosen else _axes(paths, dataset)),
    )


def _axes(paths: list[Path], dataset: str | None) -> dict[str, Any]:
    """Data set, base model and time axis of a figure of these files."""
    found = {}
    for path in paths:
        with suppress(UserError):  # a damaged file is named, and left out, later
            found[path] = read(path)
    checkpoints = [c for results in found.values() for c in results.values()]
    shared = sorted(set.intersection(*[set(c.datasets) for c in checkpoints] or [set()]))
    if not shared or (dataset is None and len(shared) > 1):
        raise UserError(f"dataset=null: the runs share {', '.join(shared) or 'none'}; set one")
    dataset = dataset or shared[0]
    seconds = [
        [c.meta.get("train_seconds") for c in results.values()] for results in found.values()
    ]
    for path, times in zip(found, seconds, strict=True):
        if None in times:
            remedy = "published files have none; add figure=<name> for its axis"
            raise UserError(f"{path}: a checkpoint without train_seconds; {remedy}")
    facts, last = settings(*next(iter(found.items())), dataset), max(map(max, seconds))
    spacing = min(float(np.median(np.diff([0, *sorted(times)]))) for times in seconds)
    grids = [facts.get(f"{key}.every_seconds") for key in ("checkpoint", "evaluation")]
    every = min(filter(None, grids), key=lambda grid: abs(grid - spacing), default=spacing)
    model = facts.get("model.name")
    return {
        "dataset": dataset,
        "metric": "ans_acc",
        "checkpoints": None,
        "base": [f"base-{model}"] if model else [],
        "grid_seconds": every,
        "budget_seconds": every * max(1, math.ceil(last / every - 0.5)),
        "time_unit": "hours" if last >= 7200 else "minutes" if last >= 300 else "seconds",
        "gpus": 1,
    }
