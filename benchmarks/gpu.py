"""What the suite does on a GPU: parts in order of worth, one JSON line each, ten minutes a call.

    uv run benchmarks/gpu.py             # the parts that have no line in <output_dir>/gpu.jsonl
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
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "transformers", "trl", "bitsandbytes", "vllm", "unsloth")
QWEN_3B = {
    "hidden_size": 2048, "intermediate_size": 11008, "vocab_size": 151936, "num_hidden_layers": 36,
    "num_attention_heads": 16, "num_key_value_heads": 2, "layer_types": ["full_attention"] * 36,
}  # fmt: skip
SIZES = {True: (8, 4, 24), False: (64, 16, 512)}  # on a CPU or not: n, m, tokens of a completion


class Part(NamedTuple):
    name: str  # and of its training
    keys: str  # of its training
    cpu: bool
    folder: Path


def main() -> None:
    keys = {"cpu": "false", "part": "", "output_dir": "checkpoints/gpu"}
    for argument in sys.argv[1:]:
        key, _, value = argument.partition("=")
        if key not in keys or (key == "part" and value not in PARTS):
            sys.exit(f"{argument}: give {', '.join(keys)}; a part is one of {', '.join(PARTS)}")
        keys[key] = value
    name, cpu, folder = keys["part"], keys["cpu"] == "true", Path(keys["output_dir"]).resolve()
    if name:
        _, function, own = PARTS[name]
        part = Part(name, "backend=transformers engine=transformers" if cpu else own, cpu, folder)
        return print(json.dumps({"part": name} | function(part)))
    folder.mkdir(parents=True, exist_ok=True)
    file, started = folder / "gpu.jsonl", time.monotonic()
    done = {line["part"] for line in lines_of(file)}
    for name, (limit, *_) in PARTS.items():
        if name in done or (time.monotonic() - started + limit > 600 and not cpu):
            continue
        line = limited(name, limit, cpu, folder)
        print(line, flush=True)
        with file.open("a") as lines:
            lines.write(line + "\n")


def limited(name: str, limit: float, cpu: bool, folder: Path) -> str:
    """The line of a part, or one that says why it failed."""
    keys = [f"part={name}", f"cpu={cpu}".lower(), f"output_dir={folder}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "process_group": 0, "cwd": ROOT}
    process = subprocess.Popen([sys.executable, __file__, *keys], text=True, **pipes)
    try:
        stdout, stderr = process.communicate(timeout=10 * limit if cpu else limit)
    except subprocess.TimeoutExpired:
        stderr = f"not done in time, {limit} s on a GPU"
    finally:
        if process.poll() is None:  # also at Ctrl-C, with all that it started
            os.killpg(process.pid, signal.SIGKILL)
    if process.wait():
        return json.dumps({"part": name, "failed": stderr.strip().split("\n")[-1]})
    return stdout.strip().split("\n")[-1]


def run(*command: str) -> str:
    """stdout of a Python command; the part ends with its stderr if it fails."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{command[0]}: exit code {done.returncode}")
    return done.stdout


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def card(part: Part) -> dict[str, Any]:
    """Rates of a copy far larger than any cache and of a matrix product, and what is installed."""
    import torch
    from torch.utils.benchmark import Timer

    device, dtype = ("cpu", torch.float32) if part.cpu else ("cuda", torch.bfloat16)
    size, n = (2**28, 1024) if part.cpu else (2**32, 8192)
    source, target = torch.zeros(2, size, dtype=torch.uint8, device=device)
    a, b = torch.randn(2, n, n, device=device).to(dtype)
    copied = Timer("target.copy_(source)", globals=locals()).timeit(5).mean
    multiplied = Timer("a @ b", globals=locals()).timeit(20).mean
    rates = {"gigabytes_per_s": 2 * size / copied / 1e9, "teraflops": 2 * n**3 / multiplied / 1e12}
    installed = metadata.packages_distributions()
    versions = {p: metadata.version(installed[p][0]) if p in installed else None for p in PACKAGES}
    return {"card": "CPU" if part.cpu else torch.cuda.get_device_name()} | rates | versions


def train(part: Part, *keys: str) -> list[str]:
    """The command of the part's training."""
    places = f"output_dir={part.folder}", f"run={part.name}", "model.dtype=bfloat16"
    unused = "budget.train_seconds", "evaluation.every_seconds", "checkpoint.every_seconds"
    return ["train.py", *places, *(f"{key}=null" for key in unused), *part.keys.split(), *keys]


def learns(part: Part) -> dict[str, Any]:
    """The embedded policy: greedy accuracy of the base and of three checkpoints, with a resume."""
    every, results = 1 if part.cpu else 20, part.folder / "results"
    for steps in (2 * every, 3 * every):  # the second goes on where the first ended
        run(*train(part, f"checkpoint.every_steps={every}", f"max_steps={steps}"))
    places = f"run={part.name}", f"output_dir={part.folder}", f"results_dir={results}"
    run("evaluate_run.py", *places, "temperature=0", "questions=64")
    scores = json.loads((results / f"{part.name}.json").read_text())
    scores["base"] = json.loads((results / "base-tiny.json").read_text())
    accuracy = {key: next(iter(sets.values()))["ans_acc"][0] for key, sets in scores.items()}
    steps = lines_of(part.folder / part.name / "metrics.jsonl")
    return {"accuracy": accuracy, "gap": max(step.get("engine/logprob_gap", 0) for step in steps)}


def large(part: Part, *keys: str) -> list[str]:
    """The command of a training of Qwen2.5-3B's shape (cpu: the tiny one) with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder, tiny = part.folder / "random", ROOT / "pods" / "tiny_policy"
    if not (folder / "tokenizer.json").is_file():
        shape = AutoConfig.from_pretrained(tiny, **({} if part.cpu else QWEN_3B))
        with torch.device("cpu" if part.cpu else "cuda"):
            AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16).save_pretrained(folder)
        torch.cuda.empty_cache()
        AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    n, m, tokens = SIZES[part.cpu]
    sizes = f"rollouts_per_prompt={n}", f"kept_per_prompt={m}", f"micro_batch_size={m}"
    lengths = "prompts_per_step=1", f"sampling.max_completion_length={tokens}"
    return train(part, f"model.path={folder}", *sizes, *lengths, *keys)


def speed(part: Part) -> dict[str, Any]:
    """Seconds by phase, peak memory, and tokens a second beside what the bandwidth allows."""
    if "merged" in part.name:  # Unsloth adds the adapter to the base while vLLM generates
        os.environ["UNSLOTH_VLLM_MERGED_ROLLOUT"] = "1"
    said = run(*large(part, "trial=true", "max_steps=3"))
    line = {k: float(v) for k, v in re.findall(r"^(\w+/\w+) ([-+.e\d]+)$", said, re.MULTILINE)}
    weights = sum(f.stat().st_size for f in (part.folder / "random").glob("*.safetensors"))
    weights /= 4 if "4bit=true" in part.keys else 1  # bytes, read for a token of all completions
    n, _, tokens = SIZES[part.cpu]
    rate = n * tokens / line["seconds/generate"]  # in a large vocabulary hardly any completion ends
    bound = n * card(part)["gigabytes_per_s"] * 1e9 / weights
    return line | {"tokens_per_s": rate, "bound_tokens_per_s": bound}


def interrupt(part: Part) -> dict[str, Any]:
    """SIGINT to the process group in the middle of a step: the step is finished and saved."""
    command, folder = [sys.executable, *large(part, "max_steps=1000")], part.folder / part.name
    before = len(lines_of(folder / "metrics.jsonl"))
    with subprocess.Popen(command, cwd=ROOT) as process:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # in this process, which is of the group
        while process.poll() is None and len(lines_of(folder / "metrics.jsonl")) < before + 2:
            time.sleep(0.2)
        os.killpg(0, signal.SIGINT)
    if process.returncode != 128 + signal.SIGINT:
        sys.exit(process.returncode)  # its last line says why
    return {"saved": [path.name for path in folder.glob("checkpoint-*")]}


PARTS = {  # seconds at most, function, keys of its training on a GPU
    "card": (30, card, ""),
    "learns": (200, learns, "backend=unsloth engine=unsloth"),
    "speed-4bit": (120, speed, "backend=unsloth engine=unsloth model.load_in_4bit=true"),
    "interrupt": (90, interrupt, "backend=transformers engine=vllm"),
    "speed-16bit": (120, speed, "backend=unsloth engine=unsloth"),
    "merged-16bit": (120, speed, "backend=unsloth engine=unsloth"),
    "learns-vllm": (200, learns, "backend=unsloth engine=vllm"),
    "speed-vllm": (120, speed, "backend=unsloth engine=vllm model.load_in_4bit=true"),
    "standby": (120, speed, "backend=unsloth engine=unsloth vllm.standby=true"),
}


if __name__ == "__main__":
    main()
