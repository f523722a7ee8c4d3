"""The 16-bit copy of a 4-bit base: the same policy, without the cost of unpacking in each product.

    uv run scripts/dequantize.py model=qwen2.5-3b-instruct out=exports/qwen-copy
    uv run train.py experiment=gsm8k_qwen model.path=exports/qwen-copy model.load_in_4bit=false

Where it is faster: docs/gpu.md. It needs bitsandbytes (uv sync --extra gpu), but no GPU.
"""

from importlib.util import find_spec
from pathlib import Path

from pods.config.command import command
from pods.config.errors import UserError
from pods.config.keys import ModelKeys, Section, Text
from pods.models import new_folder


class DequantizeConfig(Section):
    """The keys of config/dequantize.yaml."""

    model: ModelKeys
    out: Text | None


@command("dequantize", DequantizeConfig)
def main(config: DequantizeConfig) -> None:
    """Write the folder under a temporary name, then rename it."""
    keys = config.model
    out = Path(config.out or f"exports/{keys.name}-dequantized")
    if out.exists():
        raise UserError(f"out={out}: exists; remove it, or set out=<a new folder>")
    if not keys.load_in_4bit:
        raise UserError(
            f"model.load_in_4bit=false: {keys.path} would be copied as it is; set it to true"
        )
    if not find_spec("bitsandbytes"):
        raise UserError("model.load_in_4bit=true: needs bitsandbytes; uv sync --extra gpu")
    import torch  # --help and mistakes do not wait for it

    from pods.models.policy import load_model, load_tokenizer, quantisation

    tokenizer = load_tokenizer(keys.path, keys.pad_token)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = {"quantization_config": quantisation(keys.dtype), "device_map": device}
    # Before any forward pass: on a CPU with AVX512 that repacks the weights, and bitsandbytes
    # 0.50.2 then unpacks them to other numbers.
    copy = load_model(keys.path, keys.dtype, **settings).dequantize()
    with new_folder(out) as folder:
        copy.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    print(f"wrote {out}: model.path={out} model.load_in_4bit=false")


if __name__ == "__main__":
    main()
