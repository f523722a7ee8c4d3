"""Which figures a command was asked for: one, all, or any runs without a figure's file.

Used by `uv run scripts/plot.py` and `uv run scripts/speedup.py`.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hydra import compose
from hydra.core.hydra_config import HydraConfig

from pods.cli import CONFIG_DIR, Skipped, UserError, typed
from pods.figures.definition import Absent, Figure, FigureConfig, FigureSeries, Unlike
from pods.figures.samples import settings
from pods.results import Results, find, read, warn
from pods.schema import broken

Result = TypeVar("Result")


def each(
    name: str, config: Any, work: Callable[[Any, list[str]], Result]
) -> tuple[list[Result], list[str]]:
    """work(config, skipped) of every figure asked for, and the files and figures left out.

    name: of the command's YAML file. With figure=all, figures without results are no loss. metric
    and dataset of the command replace those of the figure.
    """
    for problem in broken(config):
        raise UserError(problem)
    configs, every = [config], config.figure.name == "all"
    given = HydraConfig.get().overrides.task
    if config.runs:
        chosen = any(override.startswith("figure=") for override in given)
        config.figure = _of_runs(config, chosen)
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


def _of_runs(config: FigureConfig, chosen: bool) -> Figure:
    """The figure of runs={A: [patterns], B: [patterns]}; chosen: figure= gives its axes."""
    first, second, *_ = [*config.runs, None, None]
    figure = replace(
        config.figure,
        name="runs",
        title=", ".join(config.runs),
        baseline=first,
        pods=second,
        wandb_export=None,
        series={label: FigureSeries(patterns) for label, patterns in config.runs.items()},
    )
    if chosen:
        return figure
    patterns = [pattern for group in config.runs.values() for pattern in group]
    paths = find(config.results_dir, patterns)
    if not paths:
        listed = ", ".join(patterns)
        raise UserError(f"runs={listed}: no file of results_dir={config.results_dir} matches")
    found = {path: read(path) for path in paths}
    datasets = set.intersection(*(_datasets(results) for results in found.values()))
    if config.dataset is None and len(datasets) != 1:
        listed = ", ".join(sorted(datasets)) or "none"
        raise UserError(f"dataset=null: the runs share {listed}; set dataset=<name>")
    dataset = config.dataset or datasets.pop()
    facts = settings(paths[0], found[paths[0]], dataset)
    return replace(
        figure,
        title=f"{dataset}: {figure.title}",
        dataset=dataset,
        metric="ans_acc",
        checkpoints=None,
        base=[f"base-{facts['model.name']}"] if "model.name" in facts else [],
        **_axis(found, facts.get("checkpoint.every_seconds")),
    )


def _datasets(results: Results) -> set[str]:
    return {name for checkpoint in results.values() for name in checkpoint.datasets}


def _axis(found: dict[Path, Results], every: float | None) -> dict[str, Any]:
    """Grid, budget and unit of the time axis, from the measured seconds of the runs."""
    times = {
        path: sorted(c.meta["train_seconds"] for c in results.values() if "train_seconds" in c.meta)
        for path, results in found.items()
    }
    for path, seconds in times.items():
        if not seconds:
            raise UserError(
                f"{path}: has no train_seconds, as published files; add figure=<name> for its axis"
            )
    last = max(seconds[-1] for seconds in times.values())
    grid = every or min(float(np.median(np.diff([0, *s]))) for s in times.values())
    unit = "hours" if last >= 7200 else "minutes" if last >= 300 else "seconds"
    budget = grid * max(1, math.ceil(last / grid - 0.5))
    return {"grid_seconds": grid, "budget_seconds": budget, "time_unit": unit, "gpus": 1}
