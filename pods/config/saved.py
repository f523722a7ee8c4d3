"""The config that a run was trained with, from checkpoints/<run>/.hydra/config.yaml."""

from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from pods.config.command import one_line, typed
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.config.schema import explain


def load(path: Path) -> TrainConfig:
    """The saved config; UserError naming the file if it is none, or has other keys than today's."""
    try:
        return typed(TrainConfig, OmegaConf.load(path))
    except (ConfigAttributeError, ConfigKeyError, MissingMandatoryValue) as error:
        raise UserError(
            f"{path}: made by an earlier version of PODS (key {error.full_key}); train it again, "
            f"or check out the commit that {path.parents[1] / 'meta.json'} names"
        ) from None
    except (UserError, OmegaConfBaseException, ValueError, OSError, yaml.YAMLError) as error:
        line = explain(error, TrainConfig) or one_line(error)
        raise UserError(f"{path}: not a config that train.py saved ({line})") from None
