"""Configs for tests, composed from config/ as the commands do."""

from hydra import compose as hydra_compose
from hydra import initialize_config_dir

import train  # noqa: F401  registers the schema of config/train.yaml
from pods.check import check, settle
from pods.cli import CONFIG_DIR, typed
from pods.config import TrainConfig


def compose(*overrides: str) -> TrainConfig:
    """The checked training config with these overrides, on the CPU's backend and optimiser."""
    fixed = ["backend=transformers", "optimizer.name=adamw_torch_fused"]
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        config = typed(TrainConfig, hydra_compose("train", [*fixed, *overrides]))
    settle(config)
    check(config)
    return config
