"""A training config that train.py saved, also an earlier version of it, in the keys of today.

load(Path("checkpoints/<run>/.hydra/config.yaml"))
"""

from pathlib import Path
from typing import Any, get_origin

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.cli import CONFIG_DIR, UserError, compose, one_line, typed
from pods.config import TrainConfig
from pods.schema import OLD_KEYS, explain, keys

# backend.engine, before engine became a config group -> (engine.name, engine.vllm_mode).
ENGINES = {
    "auto": ("auto", "auto"),
    "generate": ("transformers", "auto"),
    "vllm": ("trl", "colocate"),
    "vllm_server": ("trl", "server"),
}
ADVANTAGES = {"group": "kept", "none": "dr_grpo"}  # of loss.scale_rewards


def load(path: Path) -> TrainConfig:
    """The config in a run's .hydra/config.yaml; UserError naming the file where it is none."""
    try:
        return typed(TrainConfig, upgrade(OmegaConf.load(path)))
    except (OmegaConfBaseException, ValueError, OSError, yaml.YAMLError) as error:
        line = explain(error, "train", TrainConfig) or one_line(error)
        raise UserError(f"{path}: not a config that train.py saved ({line})") from None


def upgrade(saved: DictConfig) -> DictConfig:
    """The saved config in the keys of today.

    A renamed key keeps its value, a new key has the default of the experiment today, and a removed
    key is dropped. Unknown keys raise an OmegaConf error.
    """
    old = OmegaConf.to_container(saved)
    values = OmegaConf.create(_without_old_keys(old))
    backend, engine = old.get("backend", {}), {}
    if "engine" in backend:
        engine["name"], engine["vllm_mode"] = _engine(old)
        moved = {key.partition(".")[2] for key in OLD_KEYS["train"] if key.startswith("backend.")}
        engine |= {key: backend[key] for key in moved & backend.keys() - {"engine"}}
        OmegaConf.update(values, "engine", engine)
    scale = old.get("loss", {}).get("scale_rewards")
    if scale is not None:
        # `batch` has no successor: the run can be evaluated, and a resume names the difference.
        OmegaConf.update(values, "advantage", {"name": ADVANTAGES.get(scale, scale), "params": {}})
    upgraded = OmegaConf.merge(_defaults(old.get("experiment")), values)
    for key, annotation in keys(TrainConfig).items():
        whole = OmegaConf.select(values, key) if get_origin(annotation) is dict else None
        if whole is not None:  # not mixed with the keys of the default
            OmegaConf.update(upgraded, key, whole, merge=False)
    return upgraded


def _defaults(experiment: str | None) -> DictConfig:
    known = (CONFIG_DIR / "experiment" / f"{experiment}.yaml").is_file()
    return compose("train", TrainConfig, [f"experiment={experiment}"] if known else [])


def _engine(old: dict[str, Any]) -> tuple[str, str]:
    """(engine.name, engine.vllm_mode) that generate as backend.engine did."""
    backend, full = old["backend"], old.get("lora", {}).get("rank") is None
    unsloth = backend.get("name") == "unsloth"
    if backend["engine"] == "generate" and (unsloth or full):
        return "trl", "none"
    if backend["engine"] == "vllm" and unsloth:
        return "unsloth", "auto"
    return ENGINES[backend["engine"]]


def _without_old_keys(values: dict[str, Any]) -> dict[str, Any]:
    kept = {group: dict(part) if isinstance(part, dict) else part for group, part in values.items()}
    for key in OLD_KEYS["train"]:
        group, _, name = key.partition(".")
        if isinstance(kept.get(group), dict):
            kept[group].pop(name, None)
    return kept
