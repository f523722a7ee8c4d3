"""Configs for tests, composed from config/ as the commands do."""

import copy
import functools
import os
from typing import Any

from pods.config import command
from pods.config.keys import TrainConfig
from pods.training.check import check, settle


def compose(*overrides: str) -> TrainConfig:
    """The checked training config with these overrides, on the CPU's backend and optimiser."""
    variables = [(name, value) for name, value in os.environ.items() if "PYTEST" not in name]
    return copy.deepcopy(_composed(overrides, os.getcwd(), tuple(sorted(variables))))


@functools.cache  # Hydra takes 0.2 s for each
def _composed(overrides: tuple[str, ...], *_: Any) -> TrainConfig:
    """`_`: what else a config depends on, the folder and the variables of a launcher."""
    fixed = ["backend=transformers", "optimizer.name=adamw_torch_fused"]
    config = command.typed(TrainConfig, command.compose("train", [*fixed, *overrides]))
    settle(config)
    check(config)
    return config


def get(config: TrainConfig, key: str) -> Any:
    """The value at a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value
