"""Whether the tensors of a checkpoint are those of a policy on its base, told before any weight of
the base is loaded: a digest says only that a file is as it was sealed."""

from __future__ import annotations  # Unsloth precedes transformers and PEFT

import warnings
from pathlib import Path

from pods.files import few
from pods.models import is_adapter


def fault(checkpoint: Path, base: str) -> str | None:
    """The first fault in the weights of a checkpoint, or None; base: model.path of its run."""
    import torch
    from peft import PeftConfig, get_peft_model, get_peft_model_state_dict
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
                with warnings.catch_warnings(action="ignore"):  # given again when it is loaded
                    policy = get_peft_model(model, PeftConfig.from_pretrained(checkpoint))
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
