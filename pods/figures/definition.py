"""The keys of config/figure/<name>.yaml with their types, and `figure=all`.

Used by `uv run scripts/plot.py`, `uv run scripts/speedup.py` and `uv run scripts/report.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hydra import compose
from hydra.core.hydra_config import HydraConfig

from pods.cli import CONFIG_DIR, UserError, typed
from pods.results import warn

Result = TypeVar("Result")


@dataclass
class SecondsPerStep:
    generate: float
    update: float


@dataclass
class FigureSeries:
    runs: list[str] = field(default_factory=list)
    colour: str | None = None
    seconds_per_step: SecondsPerStep | None = None


@dataclass
class WandbExport:
    accuracy: str
    length: str


@dataclass
class Figure:
    name: str
    title: str
    dataset: str
    metric: str
    grid_seconds: float
    budget_seconds: float
    checkpoints: int | None
    time_unit: str
    gpus: int
    base: list[str]
    baseline: str | None
    pods: str | None
    wandb_export: WandbExport | None
    series: dict[str, FigureSeries]


@dataclass
class FigureConfig:
    """The keys that plot.py and speedup.py share."""

    figure: Figure
    results_dir: str
    metric: str | None
    dataset: str | None
    fraction_of_best: float
    resamples: int
    seed: int


class Absent(UserError):
    """A figure without result files: figure=all skips it."""


def each(name: str, config: Any, work: Callable[[Any], Result]) -> list[Result]:
    """work(config), with figure=all for every figure of config/figure that has results.

    name: of the command's YAML file. metric and dataset of the command replace those of the figure.
    """
    configs, every = [config], config.figure.name == "all"
    if every:
        given = [o for o in HydraConfig.get().overrides.task if not o.startswith("figure=")]
        files = sorted((CONFIG_DIR / "figure").glob("[!_]*.yaml"))
        names = [file.stem for file in files if file.stem != "all"]
        composed = [compose(name, [*given, f"figure={figure}"]) for figure in names]
        configs = [typed(type(config), one) for one in composed]
    done = []
    for one in configs:
        one.figure.metric = one.metric or one.figure.metric
        one.figure.dataset = one.dataset or one.figure.dataset
        try:
            done.append(work(one))
        except Absent as error:
            if not every:
                raise
            warn(f"{error}; skipped")
    return done
