"""The keys of config/figure/<name>.yaml and of the commands on figures, with their types.

Used by `uv run scripts/plot.py`, `uv run scripts/speedup.py` and `uv run scripts/report.py`.
"""

from dataclasses import dataclass, field

from omegaconf import MISSING

from pods.config.errors import UserError
from pods.config.schema import positive, share


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
    split_by: list[str]
    series: dict[str, FigureSeries | None]


@dataclass
class Comparison:
    """The keys of config/_comparison.yaml: how two arms are compared."""

    fraction_of_best: float = share()
    target: float | None = share()
    resamples: int = positive()
    seed: int = MISSING


@dataclass
class FigureConfig(Comparison):
    """The keys that plot.py and speedup.py share."""

    figure: Figure = MISSING
    runs: dict[str, list[str]] = field(default_factory=dict)
    results_dir: str = MISSING
    metric: str | None = MISSING
    dataset: str | None = MISSING


class Absent(UserError):
    """A figure without result files: figure=all skips it."""


class Unlike(UserError):
    """Runs of one series that must not be averaged: figure=all goes on, and exits with 3."""
