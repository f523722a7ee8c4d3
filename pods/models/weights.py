"""Whether the tensors of a checkpoint are those of a policy on its base, told before any weight of
the base is loaded: a digest says only that a file is as it was sealed."""

from __future__ import annotations  # Unsloth precedes transformers and PEFT

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from pods.files import few
from pods.models import is_adapter

if TYPE_CHECKING:
    from peft import LoraConfig


class AutoMapping(BaseModel):
    """The model's class, as Unsloth notes it; PEFT would import the module."""

    model_config = ConfigDict(extra="forbid", strict=True)

    base_model_class: str
    parent_library: str = Field(pattern=r"^transformers(\.\w+)*$")
    unsloth_fixed: bool = False


class Adapter(BaseModel):
    """What adapter_config.json holds of a LoRA of ours."""

    model_config = ConfigDict(strict=True)

    peft_type: Literal["LORA"]
    task_type: Literal["CAUSAL_LM"]
    r: PositiveInt
    lora_alpha: PositiveFloat
    lora_dropout: float = Field(ge=0, lt=1)
    target_modules: list[str] | str
    bias: Literal["none"] = "none"
    fan_in_fan_out: bool = False
    init_lora_weights: bool = True
    inference_mode: bool = True
    base_model_name_or_path: str | None = None
    revision: str | None = None
    auto_mapping: AutoMapping | None = None
    peft_version: str | None = None


def adapter_config(file: Path) -> LoraConfig:
    """The adapter of a checkpoint. PEFT would import modules that some fields name: the file is
    read here. All that no LoRA of ours sets has PEFT's default. Raises ValueError."""
    from peft import LoraConfig

    content = json.loads(file.read_bytes())
    try:
        adapter = Adapter.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    defaults: dict[str, Any] = LoraConfig().to_dict()
    for name, value in content.items():
        if name not in Adapter.model_fields and value != defaults.get(name) and value:
            raise ValueError(f"{name}={value!r}: no LoRA of train.py has it")
    known = adapter.model_fields_set & defaults.keys() - {"peft_type", "auto_mapping"}
    return LoraConfig(**adapter.model_dump(include=known))


def fault(checkpoint: Path, base: str) -> str | None:
    """The first fault in the weights of a checkpoint, or None; base: model.path of its run."""
    import torch
    from peft import get_peft_model, get_peft_model_state_dict
    from safetensors import SafetensorError, safe_open
    from transformers import AutoModelForCausalLM

    from pods.models.policy import read_config

    shapes: dict[str, tuple[int, ...]] = {}  # by the name of a tensor
    file = checkpoint
    try:
        for file in sorted(checkpoint.glob("*.safetensors")):
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - no dictionary
                    tensor = tensors.get_tensor(name)
                    if tensor.is_floating_point() and not tensor.isfinite().all():
                        return f"{file.name}: {name} is not finite"
                    shapes[name] = tuple(tensor.shape)
    except SafetensorError as error:
        return f"{file.name} cannot be read ({error})"

    config = read_config(base)
    with torch.device("meta"):  # takes no memory and no random numbers
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        tensors = dict(model.named_parameters())
        if is_adapter(checkpoint):
            try:
                for further in checkpoint.glob("*/adapter_config.json"):  # PEFT's "ref"
                    adapter_config(further)
                adapter = adapter_config(checkpoint / "adapter_config.json")
                with warnings.catch_warnings(action="ignore"):  # given again when it is loaded
                    policy = get_peft_model(model, adapter)
                    tensors = get_peft_model_state_dict(policy, save_embedding_layers=False)
            except Exception as error:  # PEFT has a type of its own for each mistake
                return f"adapter_config.json cannot be read ({error})"
        elif not shapes.keys() <= tensors.keys():
            return None  # all weights under other names: transformers maps them when it loads
    missing = sorted(tensors.keys() - shapes.keys())
    if missing:
        return f"{file.name} lacks {len(missing)} of {len(tensors)} tensors: {few(missing)}"
    for name, tensor in tensors.items():
        if shapes[name] != tuple(tensor.shape):
            return f"{file.name}: {name} has the shape {shapes[name]}, not {tuple(tensor.shape)}"
    return None
