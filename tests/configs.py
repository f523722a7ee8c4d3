"""Configs for tests, composed from config/ as the commands do."""

import copy
import functools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from pods import registry, tasks
from pods.config import command, sweeps
from pods.config.command import CONFIG_DIR
from pods.config.keys import TaskKeys, TrainConfig
from pods.config.mistakes import validated
from pods.training.check import check, resolve_defaults

if TYPE_CHECKING:
    from datasets import Dataset

OUTPUT = TemporaryDirectory()  # a trainer makes its output_dir when it is built


def compose(*overrides: str) -> TrainConfig:
    """The checked training config with these overrides, on the CPU's backend and optimiser."""
    config = command.typed(TrainConfig, composed(*overrides))
    resolve_defaults(config)
    check(config)
    return config


def composed(*overrides: str) -> DictConfig:
    """As command.compose, which is called once for a choice of groups: it takes 0.2 s. Then Hydra's
    own function sets the other keys."""
    defaults = ["backend=transformers", "optimizer.name=adamw_torch_fused"]
    config = overridden("train", CONFIG_DIR, *defaults, f"output_dir={OUTPUT.name}", *overrides)
    registry.resolve(config)
    return config


def overridden(name: str, folder: Path, *overrides: str) -> DictConfig:
    """Of any command, before what an algorithm implies."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    groups = [override for override in parsed if sweeps.is_group(override)]
    config = copy.deepcopy(_chosen(name, folder, *(override.input_line for override in groups)))
    others = [override for override in parsed if not sweeps.is_group(override)]
    ConfigLoaderImpl._apply_overrides_to_config(others, config)
    return config


@functools.cache
def _chosen(name: str, folder: Path, *choices: str) -> DictConfig:
    return command.compose(name, list(choices), folder)


def load_rows(name: str, split: str, data_dir: str | None = None, **settings: Any) -> "Dataset":
    """Every row of a task's split under these keys of config/task."""
    values = {**composed("task=gsm8k").task, "name": name, **settings}
    return tasks.load_for(validated(TaskKeys, values, "task."), split, data_dir)


def get(config: TrainConfig, key: str) -> Any:
    return functools.reduce(getattr, key.split("."), config)
