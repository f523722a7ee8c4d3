"""A training config that train.py saved, also an earlier version of it, in the keys of today.

load(Path("checkpoints/<run>/.hydra/config.yaml"))
"""

from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config.command import CONFIG_DIR, compose, one_line, typed
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.config.schema import MOVED_TO_ENGINE, OLD_KEYS, dict_keys, explain

ADVANTAGES = {"group": "kept", "none": "dr_grpo"}  # of loss.scale_rewards


def load(path: Path) -> TrainConfig:
    """The config in a run's .hydra/config.yaml; UserError naming the file where it is none."""
    try:
        return typed(TrainConfig, upgrade(OmegaConf.load(path)))
    except (UserError, OmegaConfBaseException, ValueError, OSError, yaml.YAMLError) as error:
        line = explain(error, "train", TrainConfig) or one_line(error)
        raise UserError(f"{path}: not a config that train.py saved ({line})") from None


def upgrade(saved: DictConfig) -> DictConfig:
    """The saved config in the keys of today.

    A renamed key keeps its value, a new key has the default of the experiment today, and a removed
    key is dropped. Unknown keys raise an OmegaConf error.
    """
    values = OmegaConf.to_container(saved)
    backend, loss = values.get("backend", {}), values.get("loss", {})
    if "engine" in backend:
        moved = {key: backend[key] for key in MOVED_TO_ENGINE if key in backend}
        values["engine"] = _engine(values) | moved
    if (scale := loss.get("scale_rewards")) is not None:
        # `batch` has no successor: the run can be evaluated, and a resume names the difference.
        values["advantage"] = {"name": ADVANTAGES.get(scale, scale), "params": {}}
    values.get("optimizer", {}).setdefault("schedule_by", "steps")  # before there was a choice
    for group, _, name in (key.partition(".") for key in OLD_KEYS["train"]):
        if isinstance(values.get(group), dict):
            values[group].pop(name, None)
    experiment = values.get("experiment")
    known = (CONFIG_DIR / "experiment" / f"{experiment}.yaml").is_file()
    today = compose("train", TrainConfig, [f"experiment={experiment}"] if known else [])
    upgraded, values = OmegaConf.merge(today, values), OmegaConf.create(values)
    for key in dict_keys(TrainConfig):  # not mixed with the keys of the default
        if (whole := OmegaConf.select(values, key)) is not None:
            OmegaConf.update(upgraded, key, whole, merge=False)
    return upgraded


def _engine(old: dict[str, Any]) -> dict[str, str]:
    """Name and vllm_mode of the engine that generates as backend.engine did."""
    name, unsloth = old["backend"]["engine"], old["backend"].get("name") == "unsloth"
    without_lora = old.get("lora", {}).get("rank") is None
    found = {
        "auto": ("auto", "auto"),
        "generate": ("trl", "none") if unsloth or without_lora else ("transformers", "auto"),
        "vllm": ("unsloth", "auto") if unsloth else ("trl", "colocate"),
        "vllm_server": ("trl", "server"),
    }
    return dict(zip(("name", "vllm_mode"), found[name], strict=True))
