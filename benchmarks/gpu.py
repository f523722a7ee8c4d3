"""What the suite does on a GPU: parts in order of worth, one JSON line each, ten minutes a call.

    uv run benchmarks/gpu.py             # the parts that are not done in <output_dir>/gpu.jsonl
    uv run benchmarks/gpu.py cpu=true    # every part on a tiny shape, without Unsloth and vLLM
    uv run benchmarks/gpu.py part=card   # one part alone; all take output_dir=checkpoints/gpu
Only the standard library is imported here: where a package is missing, a part's line says so.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "pods" / "tiny_policy"
CALL_SECONDS = 600
PACKAGES = ("torch", "transformers", "trl", "bitsandbytes", "vllm", "unsloth")
LOADED = ("bitsandbytes", "vllm._C_stable_libtorch", "unsloth")  # with libraries of their own
QWEN_3B = {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "vocab_size": 151936,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "layer_types": ["full_attention"] * 36,
    "initializer_range": 0.02,  # 0.06, of the tiny policy, makes noise of 0.3 nats in bfloat16
}
MAIN_PATH = [  # experiment=gsm8k_qwen; without its data, so the other keys are the quickstart's
    "lora.rank=64",
    "gradient_checkpointing=true",
    "sampling.temperature=0.9",
    "loss.type=grpo",
    "optimizer.schedule=constant",
    "prompts_per_step=1",
]
CPU_SIZES = {"n": 8, "m": 4, "tokens": 24}
GPU_SIZES = {"n": 64, "m": 16, "tokens": 512}
UNSLOTH = "backend=unsloth engine=unsloth"


@dataclass(frozen=True)
class Part:
    """A measurement, in a process of its own."""

    name: str  # and of its training
    seconds: float  # at most, on a GPU
    measure: Callable[["Place", str, list[str]], dict[str, Any]]
    keys: str = ""  # of its training on a GPU


@dataclass(frozen=True)
class Place:
    """Where parts run: on a CPU or not, and the folder of their files."""

    cpu: bool
    folder: Path

    @property
    def lines(self) -> Path:
        return self.folder / "gpu.jsonl"

    @property
    def sizes(self) -> dict[str, int]:
        return CPU_SIZES if self.cpu else GPU_SIZES


def main() -> None:
    keys = {"cpu": "false", "part": "", "output_dir": "checkpoints/gpu"}
    names = [part.name for part in PARTS]
    for argument in sys.argv[1:]:
        key, _, value = argument.partition("=")
        if key not in keys or (key == "part" and value not in names):
            sys.exit(f"{argument}: give {', '.join(keys)}; a part is one of {', '.join(names)}")
        keys[key] = value
    place = Place(keys["cpu"] == "true", Path(keys["output_dir"]).resolve())
    if not keys["part"]:
        return run_all(place)
    part = PARTS[names.index(keys["part"])]
    own = "backend=transformers engine=transformers" if place.cpu else part.keys
    figures = part.measure(place, part.name, own.split())
    print(json.dumps({"part": part.name} | figures))


def run_all(place: Place) -> None:
    """The parts without figures, for ten minutes; those that failed come last."""
    place.folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    before = lines_of(place.lines)
    failed = {line["part"] for line in before if "failed" in line}
    done = {line["part"] for line in before if "failed" not in line}
    for part in sorted(PARTS, key=lambda part: part.name in failed):
        seconds_left = CALL_SECONDS - (time.monotonic() - started)
        if part.name in done or (part.seconds > seconds_left and not place.cpu):
            continue
        line = line_of(part, place)
        print(line, flush=True)
        with place.lines.open("a") as file:
            file.write(line + "\n")


def line_of(part: Part, place: Place) -> str:
    """The line of a part, or one that says why it failed."""
    keys = [f"part={part.name}", f"cpu={place.cpu}".lower(), f"output_dir={place.folder}"]
    process = subprocess.Popen(
        [sys.executable, __file__, *keys],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    try:
        limit = 10 * part.seconds if place.cpu else part.seconds
        stdout, stderr = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        stderr = f"not done in time, {part.seconds} s on a GPU"
    finally:
        if process.poll() is None:  # also at Ctrl-C, with all that it started
            os.killpg(process.pid, signal.SIGKILL)
    if process.wait():
        return json.dumps({"part": part.name, "failed": stderr.strip().split("\n")[-1]})
    return stdout.strip().split("\n")[-1]


def run(*command: str) -> str:
    """stdout of a Python command; the part ends with its stderr if it fails."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{command[0]}: exit code {done.returncode}")
    return done.stdout


def lines_of(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def card(place: Place, *_: Any) -> dict[str, Any]:
    """Rates, what is installed, and on a GPU whether the packages with kernels load."""
    import torch

    installed = metadata.packages_distributions()
    figures: dict[str, Any] = {
        "card": "CPU" if place.cpu else torch.cuda.get_device_name(),
        **rates(place),
    }
    for package in PACKAGES:
        known = package in installed
        figures[package] = metadata.version(installed[package][0]) if known else None
    for module in () if place.cpu else LOADED:
        try:
            import_module(module)
        except Exception as error:  # whatever a library says
            figures[f"import {module}"] = f"{type(error).__name__}: {error}"
    return figures


def rates(place: Place) -> dict[str, float]:
    """Of a copy far larger than any cache, and of a matrix product (16 bits on a GPU)."""
    import torch
    from torch.utils.benchmark import Timer

    device, dtype = ("cpu", torch.float32) if place.cpu else ("cuda", torch.bfloat16)
    size = 2**28 if place.cpu else 2**32
    source, target = torch.zeros(2, size, dtype=torch.uint8, device=device)
    copy = Timer("target.copy_(source)", globals={"source": source, "target": target})
    n = 1024 if place.cpu else 8192
    a, b = torch.randn(2, n, n, device=device).to(dtype)
    product = Timer("a @ b", globals={"a": a, "b": b})
    return {
        "gigabytes_per_s": 2 * size / copy.timeit(5).mean / 1e9,
        "teraflops": 2 * n**3 / product.timeit(20).mean / 1e12,
    }


def train(place: Place, name: str, *keys: str) -> list[str]:
    """The command of a part's training."""
    places = [f"output_dir={place.folder}", f"run={name}", "model.dtype=bfloat16"]
    unused = ["budget.train_seconds", "evaluation.every_seconds", "checkpoint.every_seconds"]
    return ["train.py", *places, *(f"{key}=null" for key in unused), *keys]


def learns(place: Place, name: str, keys: list[str]) -> dict[str, Any]:
    """The embedded policy: greedy accuracy of the base and of three checkpoints, with a resume."""
    every = 1 if place.cpu else 20
    results = place.folder / "results"
    keys = [*keys, f"checkpoint.every_steps={every}"]
    run(*train(place, name, *keys, f"max_steps={2 * every}"))
    run(*train(place, name, *keys, f"max_steps={3 * every}"))  # goes on where the first ended
    places = [f"run={name}", f"output_dir={place.folder}", f"results_dir={results}"]
    run("evaluate_run.py", *places, "temperature=0", "questions=64")
    scores = json.loads((results / f"{name}.json").read_text())
    scores["base"] = json.loads((results / "base-tiny.json").read_text())
    accuracy = {key: next(iter(sets.values()))["ans_acc"][0] for key, sets in scores.items()}
    steps = lines_of(place.folder / name / "metrics.jsonl")
    gaps = [step.get("engine/logprob_gap", 0) for step in steps]
    return {"accuracy": accuracy, "gap": max(gaps)}


def write_large(place: Place) -> Path:
    """Random weights of Qwen2.5-3B's shape (cpu: the tiny one) and the tiny policy's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder = place.folder / "random"
    if not (folder / "tokenizer.json").is_file():
        changes = {} if place.cpu else QWEN_3B
        shape = AutoConfig.from_pretrained(TINY, **changes)
        with torch.device("cpu" if place.cpu else "cuda"):
            model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
        model.save_pretrained(folder)
        del model
        torch.cuda.empty_cache()
        AutoTokenizer.from_pretrained(TINY).save_pretrained(folder)
    return folder


def large_keys(place: Place) -> list[str]:
    """Of a training of the large shape."""
    sizes = place.sizes
    return [
        *MAIN_PATH,
        f"model.path={place.folder / 'random'}",
        f"rollouts_per_prompt={sizes['n']}",
        f"kept_per_prompt={sizes['m']}",
        f"micro_batch_size={sizes['m']}",
        f"sampling.max_completion_length={sizes['tokens']}",
    ]


def speed(place: Place, name: str, keys: list[str]) -> dict[str, Any]:
    """Seconds by phase, peak memory, and tokens a second beside what the bandwidth allows."""
    folder = write_large(place)
    if "merged" in name:  # Unsloth adds the adapter to the base while vLLM generates
        os.environ["UNSLOTH_VLLM_MERGED_ROLLOUT"] = "1"
    keys = [*large_keys(place), *keys, "trial=true", "max_steps=3"]
    report = run(*train(place, name, *keys))
    figures = re.findall(r"^(\w+/\w+) ([-+.e\d]+)$", report, re.MULTILINE)
    line = {key: float(value) for key, value in figures}
    rollouts = place.sizes["n"]
    tokens = rollouts * place.sizes["tokens"]  # in a large vocabulary hardly any completion ends
    steps_per_s = rates(place)["gigabytes_per_s"] * 1e9 / bytes_read(folder, keys)
    return line | {
        "tokens_per_s": tokens / line["seconds/generate"],
        "bound_tokens_per_s": rollouts * steps_per_s,
    }


def bytes_read(folder: Path, keys: list[str]) -> float:
    """Of the weights, for one token of all completions. The head, which is the embedding, stays in
    16 bits where the other matrices have 4."""
    shape = json.loads((folder / "config.json").read_text())
    every = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    head = 2 * shape["vocab_size"] * shape["hidden_size"]
    return head + (every - head) / 4 if "model.load_in_4bit=true" in keys else every


def interrupt(place: Place, name: str, keys: list[str]) -> dict[str, Any]:
    """SIGINT to the process group in the middle of a step: the step is finished and saved."""
    write_large(place)
    command = train(place, name, *large_keys(place), *keys, "max_steps=1000")
    folder = place.folder / name
    before = len(lines_of(folder / "metrics.jsonl"))
    with subprocess.Popen([sys.executable, *command], cwd=ROOT) as process:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # in this process, which is of the group
        while process.poll() is None and len(lines_of(folder / "metrics.jsonl")) < before + 2:
            time.sleep(0.2)
        os.killpg(0, signal.SIGINT)
    if process.returncode != 128 + signal.SIGINT:
        sys.exit(process.returncode)  # its last line says why
    return {"saved": [path.name for path in folder.glob("checkpoint-*")]}


PARTS = [  # the main path first
    Part("card", 120, card),
    Part("speed-4bit", 300, speed, f"{UNSLOTH} model.load_in_4bit=true"),
    Part("learns", 480, learns, UNSLOTH),
    Part("speed-vllm", 300, speed, "backend=unsloth engine=vllm model.load_in_4bit=true"),
    Part("interrupt", 240, interrupt, "backend=transformers engine=vllm"),
    Part("speed-16bit", 300, speed, UNSLOTH),
    Part("standby", 300, speed, f"{UNSLOTH} vllm.standby=true"),
    Part("merged-16bit", 300, speed, UNSLOTH),
    Part("learns-vllm", 480, learns, "backend=unsloth engine=vllm"),
]


if __name__ == "__main__":
    main()
