"""The config that a run was trained with, from checkpoints/<run>/.hydra/config.yaml."""

from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.config.mistakes import ABSENT, first_of, one_line, wrong


def load(path: Path) -> TrainConfig:
    """The saved config; UserError naming the file if it is none, or has other keys than today's."""
    line = f"{path}: not a config that train.py saved"
    try:
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OmegaConfBaseException, ValueError, OSError, yaml.YAMLError) as error:
        raise UserError(f"{line} ({one_line(error)})") from None
    if not isinstance(values, dict):
        raise UserError(f"{line} (a list)")
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as error:
        if (first := first_of(error))["type"] in ABSENT:
            key = ".".join(map(str, first["loc"]))
            raise UserError(
                f"{path}: made by an earlier version of PODS (key {key}); train it again, or check "
                f"out the commit that {path.parents[1] / 'meta.json'} names"
            ) from None
        raise UserError(f"{line} ({wrong(error, TrainConfig, values)})") from None
