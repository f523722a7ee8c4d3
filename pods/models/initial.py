"""A new run whose adapter starts as that of a checkpoint: `init_from=<checkpoint folder>`.

    uv run train.py init_from=checkpoints/<run>/checkpoint-40 task=math run=<new run>

A checkpoint becomes the base of a new adapter of any size by scripts/export.py, then model.path.
"""

import json
from pathlib import Path
from typing import Any

from pods.config.command import load_config
from pods.config.errors import UserError
from pods.config.keys import Model, TrainConfig
from pods.engines import is_adapter, same_model
from pods.files import replaced
from pods.models.location import locate
from pods.runs import checkpoints
from pods.runs.checkpoints import Checkpoint

EXPORT = "export it (scripts/export.py) and set model.path=<its folder>"


def check(config: TrainConfig) -> None:
    """Raise UserError where a new run cannot start from config.init_from."""
    if config.init_from is not None and not _started(config):
        source = _source(config)
        if problem := checkpoints.damage(source):
            raise UserError(f"init_from={config.init_from}: {problem}; name another checkpoint")
        if not is_adapter(source.path):
            raise UserError(f"init_from={source.path}: has no adapter; {EXPORT}")
        _check_adapter(config, source)


def facts(config: TrainConfig) -> dict[str, Any]:
    """What meta.json says about the origin of the weights: checkpoint, step and digests."""
    if config.init_from is None:
        return {}
    source = _source(config)
    files = {n: f["sha256"] for n, f in source.meta["files"].items() if n.endswith(".safetensors")}
    origin = {"checkpoint": str(source.path), "step": source.step, "sha256": files}
    return {"init_from": origin}


def load_adapter(config: TrainConfig, model: Any) -> None:
    """Give the new adapter of `model` the checkpoint's weights."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    if config.init_from is not None:
        weights = load_file(_source(config).path / "adapter_model.safetensors")
        if unknown := set_peft_model_state_dict(model, weights).unexpected_keys:
            raise UserError(
                f"init_from={config.init_from}: {unknown[0]} fits no layer of the model"
            )


def _source(config: TrainConfig) -> Checkpoint:
    folder = Path(str(config.init_from))
    found = [c for c in checkpoints.find(folder.parent) if c.path.name == folder.name]
    if not found:
        raise UserError(f"init_from={folder}: no finished checkpoint; give <run>/checkpoint-<step>")
    return found[0]


def _check_adapter(config: TrainConfig, source: Checkpoint) -> None:
    adapter = json.loads((source.path / "adapter_config.json").read_text())
    if not same_model(adapter["base_model_name_or_path"], config.model.path):
        trained = load_config(source.path.parent / ".hydra" / "config.yaml").model
        raise UserError(
            f"init_from={source.path}: adapter of another base than model.path="
            f"{config.model.path}; set model.path={trained.path} model.name={trained.name}"
        )
    lora = config.lora
    mine = {"r": lora.rank, "lora_alpha": lora.alpha, "target_modules": sorted(lora.target_modules)}
    theirs = {name: adapter[name] for name in mine}
    theirs["target_modules"] = sorted(theirs["target_modules"])
    if mine != theirs:
        raise UserError(
            f"init_from={source.path}: its adapter has lora.rank={theirs['r']} "
            f"lora.alpha={theirs['lora_alpha']} lora.target_modules="
            f"[{','.join(theirs['target_modules'])}]; set these, or {EXPORT}"
        )


def write_merged(model: Model, checkpoint: Path, folder: Path) -> None:
    """Base model and adapter (or all weights) of a checkpoint as one model, with its tokenizer.

    Added up in float32 and rounded once to model.dtype; `folder` appears when it is complete.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from pods.models.policy import load_tokenizer

    logging.disable_progress_bar()
    original = locate(model.path)
    start = original if is_adapter(checkpoint) else checkpoint
    policy = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32, use_safetensors=True)
    if is_adapter(checkpoint):
        policy = PeftModel.from_pretrained(policy, checkpoint).merge_and_unload()
    with replaced(folder) as temporary:
        policy.to(getattr(torch, model.dtype)).save_pretrained(temporary)
        load_tokenizer(original, model.pad_token).save_pretrained(temporary)


def _started(config: TrainConfig) -> bool:
    return any((Path(config.output_dir) / config.run).glob("checkpoint-*"))
