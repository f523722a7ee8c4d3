"""What a card reaches: a copy, a product, and the products of one decode step of a model.

    python benchmarks/ceiling.py [model=<folder>] [rows=64] [gib=8] [size=8192]

Needs torch, and bitsandbytes for the line in 4 bits. Without `model` the shape is Qwen2.5-3B's. A
decode step of a training cannot be faster than its line here: docs/gpu.md divides by them.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

SHAPE = {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}
DEFAULTS = {"model": "", "rows": "64", "gib": "8", "size": "8192"}
CUDA = torch.cuda.is_available()


def main() -> None:
    """Print a line of JSON for each measurement."""
    settings = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    if not settings.keys() <= DEFAULTS.keys():
        sys.exit(f"{' '.join(sys.argv[1:])}: set any of {', '.join(DEFAULTS)}, as rows=64")
    settings = DEFAULTS | settings
    shape = SHAPE
    if settings["model"]:
        shape = json.loads((Path(settings["model"]) / "config.json").read_text())
    torch.set_default_device("cuda" if CUDA else "cpu")
    torch.set_default_dtype(torch.bfloat16)
    name = torch.cuda.get_device_name() if CUDA else "CPU"
    print(json.dumps({"card": name, "torch": torch.__version__, "rows": settings["rows"]}))

    source = torch.zeros(int(float(settings["gib"]) * 2**30), dtype=torch.uint8)
    target = torch.empty_like(source)
    report("copy", seconds_of(partial(target.copy_, source)), moved=2 * source.nbytes)
    del source, target

    size = int(settings["size"])
    factor = torch.randn(size, size)
    report("product", seconds_of(lambda: factor @ factor), operations=2 * size**3)

    rows = int(settings["rows"])
    for bits in (16, 4):
        if bits == 4 and not find_spec("bitsandbytes"):
            print(json.dumps({"what": "decode in 4 bits", "skipped": "no bitsandbytes"}))
            continue
        products, moved = decode_step(shape, rows, bits)
        report(f"decode in {bits} bits", seconds_of(graph_of(products)), moved=moved)


def decode_step(
    shape: dict[str, int], rows: int, bits: int
) -> tuple[list[Callable[[], object]], int]:
    """The products of all layers and of the head, and the bytes of their weights."""
    hidden, wide = shape["hidden_size"], shape["intermediate_size"]
    heads = shape["num_attention_heads"]
    width = shape.get("head_dim") or hidden // heads
    fused = (heads + 2 * shape["num_key_value_heads"]) * width  # vLLM multiplies these at once
    sizes = [(fused, hidden), (hidden, heads * width), (2 * wide, hidden), (hidden, wide)]
    products: list[Callable[[], object]] = []
    moved = 0
    for _ in range(shape["num_hidden_layers"]):
        for outputs, inputs in sizes:
            x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
            if bits == 16:
                products.append(partial(torch.nn.functional.linear, x, weight))
                moved += weight.nbytes
            else:
                import bitsandbytes as bnb

                packed, state = bnb.functional.quantize_4bit(weight, quant_type="nf4")
                products.append(partial(bnb.matmul_4bit, x, packed, state))
                moved += packed.nbytes
    head = torch.randn(shape["vocab_size"], hidden)
    products.append(partial(torch.nn.functional.linear, torch.randn(rows, hidden), head))
    return products, moved + head.nbytes


def graph_of(products: list[Callable[[], object]]) -> Callable[[], object]:
    """One call of all products: a CUDA graph on a card."""

    @torch.no_grad()
    def step() -> None:
        for product in products:
            product()

    if not CUDA:
        return step
    step()  # what is compiled or allocated at first use cannot be captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds_of(work: Callable[[], object]) -> float:
    """The seconds of a call, in the fastest block of calls."""
    timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
    return min(timer.blocked_autorange(min_run_time=0.5).times)  # each waits for the card


def report(what: str, seconds: float, moved: int = 0, operations: int = 0) -> None:
    """A line of JSON."""
    line = {"what": what, "ms": round(1000 * seconds, 3)}
    if moved:
        line["TB/s"] = round(moved / seconds / 1e12, 3)
    if operations:
        line["TFLOP/s"] = round(operations / seconds / 1e12, 2)
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
