"""A new run whose adapter starts as that of a checkpoint: `init_from=<checkpoint folder>`.

uv run train.py init_from=checkpoints/<run>/checkpoint-40 task=math run=<new run>
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.config.command import load_config
from pods.config.errors import UserError
from pods.config.keys import Lora, TrainConfig
from pods.models import is_adapter, same_model
from pods.runs import checkpoints
from pods.runs.checkpoints import Checkpoint

if TYPE_CHECKING:
    from peft import PeftModel

EXPORT = "export it (scripts/export.py) and set model.path=<its folder>"


def check(config: TrainConfig) -> None:
    """Raise UserError where a new run cannot start from config.init_from."""
    started = any((Path(config.output_dir) / config.run).glob("checkpoint-*"))
    if config.init_from is not None and not started:
        source = _source(config)
        if problem := checkpoints.damage(source) or _misfit(config, source.path):
            raise UserError(f"init_from={source.path}: {problem}")


def facts(config: TrainConfig) -> dict[str, Any]:
    """What meta.json says about the origin of the weights: checkpoint, step and digests."""
    if config.init_from is None:
        return {}
    source = _source(config)
    files = {n: f["sha256"] for n, f in source.meta["files"].items() if n.endswith(".safetensors")}
    origin = {"checkpoint": str(source.path), "step": source.step, "sha256": files}
    return {"init_from": origin}


def load_adapter(config: TrainConfig, model: "PeftModel") -> None:
    """Give the new adapter of `model` the checkpoint's weights."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    if config.init_from is not None:
        weights = load_file(_source(config).path / "adapter_model.safetensors")
        set_peft_model_state_dict(model, weights)


def _source(config: TrainConfig) -> Checkpoint:
    folder = Path(str(config.init_from))
    for checkpoint in checkpoints.find(folder.parent):
        if checkpoint.path.name == folder.name:
            return checkpoint
    raise UserError(f"init_from={folder}: no finished checkpoint; give <run>/checkpoint-<step>")


def _misfit(config: TrainConfig, checkpoint: Path) -> str | None:
    """Why the adapter of the run cannot start as the checkpoint's, and what to set."""
    if not is_adapter(checkpoint):
        return f"has no adapter; {EXPORT}"
    trained = load_config(checkpoint.parent / ".hydra" / "config.yaml")
    if not same_model(trained.model.path, config.model.path):
        remedy = f"set model.path={trained.model.path} model.name={trained.model.name}"
        return f"adapter of another base than model.path={config.model.path}; {remedy}"
    same = _shape(trained.lora) == _shape(config.lora)
    return None if same else f"its adapter has {_shape(trained.lora)}; set these, or {EXPORT}"


def _shape(lora: Lora) -> str:
    modules = ",".join(sorted(lora.target_modules))
    return f"lora.rank={lora.rank} lora.alpha={lora.alpha} lora.target_modules=[{modules}]"
