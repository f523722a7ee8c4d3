"""adapter_config.json of a checkpoint, read before PEFT reads it."""

from __future__ import annotations  # Unsloth precedes transformers and PEFT

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

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


def fault(checkpoint: Path) -> str | None:
    """What is wrong with the adapters of a checkpoint, or None. PEFT's reference lies in "ref"."""
    for file in (
        *checkpoint.glob("adapter_config.json"),
        *checkpoint.glob("*/adapter_config.json"),
    ):
        try:
            adapter_config(file)
        except (OSError, ValueError, RecursionError) as error:
            return f"{file.relative_to(checkpoint)} cannot be read ({error})"
    return None
