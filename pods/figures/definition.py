"""The keys of config/figure/<name>.yaml with their types, and `figure=all`.

Used by `uv run scripts/plot.py`, `uv run scripts/speedup.py` and `uv run scripts/report.py`.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from hydra import compose
from hydra.core.hydra_config import HydraConfig

from pods.cli import CONFIG_DIR, typed

Config = TypeVar("Config")


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

    @property
    def patterns(self) -> list[str]:
        """The patterns of run names of all arms."""
        return [pattern for arm in self.series.values() for pattern in arm.runs]

    @property
    def exports(self) -> list[str]:
        """File names of the wandb export; empty for a figure without one."""
        export = self.wandb_export
        return [export.accuracy, export.length] if export else []


def each(name: str, config: Any, schema: type[Config]) -> list[Config]:
    """[config], or with figure=all one config per figure of config/figure.

    name: of the command's YAML file. metric and dataset of the command replace those of the figure.
    """
    configs = [config] if config.figure.name != "all" else _all(name, schema)
    for one in configs:
        one.figure.metric = one.metric or one.figure.metric
        one.figure.dataset = one.dataset or one.figure.dataset
    return configs


def _all(name: str, schema: type[Config]) -> list[Config]:
    given = HydraConfig.get().overrides.task
    kept = [override for override in given if override.partition("=")[0] != "figure"]
    files = sorted((CONFIG_DIR / "figure").glob("*.yaml"))
    names = [file.stem for file in files if file.stem != "all" and not file.stem.startswith("_")]
    return [typed(schema, compose(name, [*kept, f"figure={figure}"])) for figure in names]
