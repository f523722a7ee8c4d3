"""Configs for tests, composed from config/ as the commands do."""

import copy
import functools
from tempfile import TemporaryDirectory
from typing import Any

from datasets import Dataset
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from pods import by_name, tasks
from pods.config import command
from pods.config.keys import TaskKeys, TrainConfig
from pods.config.mistakes import validated
from pods.training.check import check, settle

OUTPUT = TemporaryDirectory()  # a trainer makes its output_dir when it is built


def compose(*overrides: str) -> TrainConfig:
    """The checked training config with these overrides, on the CPU's backend and optimiser."""
    config = command.typed(TrainConfig, composed(*overrides))
    settle(config)
    check(config)
    return config


def composed(*overrides: str) -> DictConfig:
    """Keys are set without Hydra, which takes 0.2 s for each choice of groups."""
    defaults = ["backend=transformers", "optimizer.name=adamw_torch_fused"]
    texts = [*defaults, f"output_dir={OUTPUT.name}", *overrides]
    parsed = OverridesParser.create().parse_overrides(texts)
    groups = [(command.CONFIG_DIR / override.key_or_group).is_dir() for override in parsed]
    config = copy.deepcopy(_chosen(*(t for t, group in zip(texts, groups, strict=True) if group)))
    if not isinstance(config.clock, str):
        config.clock = config.clock.name  # an experiment's, which is read again below
    for override, group in zip(parsed, groups, strict=True):
        if not group:
            OmegaConf.update(config, override.key_or_group, override.value(), force_add=True)
    command.complete(config, texts, by_name.implied)
    return config


@functools.cache
def _chosen(*choices: str) -> DictConfig:
    return command.compose("train", list(choices))


def load_rows(name: str, split: str, data_dir: str | None = None, **settings: Any) -> Dataset:
    """Every row of a task's split under these keys of config/task."""
    values = {**composed("task=gsm8k").task, "name": name, **settings}
    return tasks.load_for(validated(TaskKeys, values, "task."), split, data_dir)


def get(config: TrainConfig, key: str) -> Any:
    return functools.reduce(getattr, key.split("."), config)
