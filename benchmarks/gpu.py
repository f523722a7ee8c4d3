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
# Without the data of GSM8K, by the tokenizer of the tiny policy.
MAIN_PATH = ["experiment=gsm8k_qwen", "task=arithmetic", "model.pad_token=null"]
TINY_SHAPE = ["rollouts_per_prompt=8", "kept_per_prompt=4", "sampling.max_completion_length=24"]
UNSLOTH = "backend=unsloth engine=unsloth"
UNUSED = ("budget.train_seconds", "evaluation.every_seconds", "checkpoint.every_seconds")


@dataclass(frozen=True)
class Part:
    """A measurement, in a process of its own."""

    seconds: float  # at most
    measure: Callable[["Training"], dict[str, Any]]
    keys: str = ""  # of its training on a GPU


@dataclass(frozen=True)
class Training:
    """The training of a part: its name and keys, on a CPU or not, and the folder of all parts."""

    name: str
    keys: list[str]
    cpu: bool
    folder: Path

    def command(self, *keys: str) -> list[str]:
        """The arguments of Python."""
        places = [f"output_dir={self.folder}", f"run={self.name}"]
        return ["train.py", *places, *(f"{key}=null" for key in UNUSED), *self.keys, *keys]

    def steps(self) -> list[dict[str, Any]]:
        """The metrics of the steps so far."""
        return read_lines(self.folder / self.name / "metrics.jsonl")


def main() -> None:
    keys = {"cpu": "false", "part": "", "output_dir": "checkpoints/gpu"}
    for argument in sys.argv[1:]:
        key, _, value = argument.partition("=")
        if key not in keys:
            sys.exit(f"{argument}: no such key; set {', '.join(keys)}")
        keys[key] = value
    cpu = keys["cpu"] == "true"
    folder = Path(keys["output_dir"]).resolve()
    name = keys["part"]
    if not name:
        return run_all(cpu, folder)
    if name not in PARTS:
        sys.exit(f"part={name}: must be one of {', '.join(PARTS)}")
    own = "backend=transformers engine=transformers" if cpu else PARTS[name].keys
    figures = PARTS[name].measure(Training(name, own.split(), cpu, folder))
    print(json.dumps({"part": name} | figures))


def run_all(cpu: bool, folder: Path) -> None:
    """The parts without figures, for ten minutes; those that failed come last."""
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    file = folder / "gpu.jsonl"
    before = read_lines(file)
    failed = {line["part"] for line in before if "failed" in line}
    done = {line["part"] for line in before if "failed" not in line}
    for name in sorted(PARTS, key=lambda name: name in failed):
        seconds_left = CALL_SECONDS - (time.monotonic() - started)
        if name in done or PARTS[name].seconds > seconds_left:
            continue
        line = line_of(name, cpu, folder)
        print(line, flush=True)
        with file.open("a") as lines:
            lines.write(line + "\n")


def line_of(name: str, cpu: bool, folder: Path) -> str:
    """The line of a part, or one that says why it failed."""
    keys = [f"part={name}", f"cpu={cpu}".lower(), f"output_dir={folder}"]
    process = subprocess.Popen(
        [sys.executable, __file__, *keys],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    try:
        stdout, stderr = process.communicate(timeout=PARTS[name].seconds)
    except subprocess.TimeoutExpired:
        stderr = f"not done in {PARTS[name].seconds} s"
    finally:
        if process.poll() is None:  # also at Ctrl-C, with all that it started
            os.killpg(process.pid, signal.SIGKILL)
    if process.wait():
        return json.dumps({"part": name, "failed": stderr.strip().split("\n")[-1]})
    return stdout.strip().split("\n")[-1]


def run(command: list[str]) -> str:
    """stdout of a Python command; the part ends with its stderr if it fails."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{command[0]}: exit code {done.returncode}")
    return done.stdout


def read_lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def card(training: Training) -> dict[str, Any]:
    """Rates of a copy far larger than any cache and of a matrix product (16 bits on a GPU), what is
    installed, and on a GPU whether the packages with kernels load."""
    import torch
    from torch.utils.benchmark import Timer

    device, dtype, size, n = "cuda", torch.bfloat16, 2**32, 8192
    if training.cpu:
        device, dtype, size, n = "cpu", torch.float32, 2**28, 1024
    source, target = torch.zeros(2, size, dtype=torch.uint8, device=device)
    copy = Timer("target.copy_(source)", globals={"source": source, "target": target})
    a, b = torch.randn(2, n, n, device=device).to(dtype)
    product = Timer("a @ b", globals={"a": a, "b": b})
    figures: dict[str, Any] = {
        "card": "CPU" if training.cpu else torch.cuda.get_device_name(),
        "gigabytes_per_s": 2 * size / copy.timeit(5).mean / 1e9,
        "teraflops": 2 * n**3 / product.timeit(20).mean / 1e12,
    }
    installed = metadata.packages_distributions()
    for package in PACKAGES:
        known = package in installed
        figures[package] = metadata.version(installed[package][0]) if known else None
    for module in () if training.cpu else LOADED:
        try:
            import_module(module)
        except Exception as error:  # whatever a library says
            figures[f"import {module}"] = f"{type(error).__name__}: {error}"
    return figures


def learns(training: Training) -> dict[str, Any]:
    """The embedded policy: greedy accuracy of the base and of three checkpoints, with a resume."""
    every = 1 if training.cpu else 20
    folder = training.folder
    results = folder / "results"
    keys = ["model.dtype=bfloat16", f"checkpoint.every_steps={every}"]
    run(training.command(*keys, f"max_steps={2 * every}"))
    run(training.command(*keys, f"max_steps={3 * every}"))  # goes on where the first ended
    places = [f"run={training.name}", f"output_dir={folder}", f"results_dir={results}"]
    run(["evaluate_run.py", *places, "temperature=0", "questions=64"])
    scores = json.loads((results / f"{training.name}.json").read_text())
    scores["base"] = json.loads((results / "base-tiny.json").read_text())
    accuracy = {key: next(iter(sets.values()))["ans_acc"][0] for key, sets in scores.items()}
    gaps = [step.get("engine/logprob_gap", 0) for step in training.steps()]
    return {"accuracy": accuracy, "gap": max(gaps)}


def shape_keys(training: Training) -> list[str]:
    """The main path by a random policy of Qwen2.5-3B's shape with the tiny policy's tokenizer; in a
    large vocabulary hardly any completion ends."""
    if training.cpu:
        return TINY_SHAPE
    policy = training.folder / "random"
    if not (policy / "tokenizer.json").is_file():
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        shape = AutoConfig.from_pretrained(TINY, **QWEN_3B)
        with torch.device("cuda"):
            model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
        model.save_pretrained(policy)
        del model
        torch.cuda.empty_cache()
        AutoTokenizer.from_pretrained(TINY).save_pretrained(policy)
    return [*MAIN_PATH, f"model.path={policy}"]


def speed(training: Training) -> dict[str, Any]:
    """Seconds by phase, peak memory, generated tokens a second."""
    report = run(training.command(*shape_keys(training), "trial=true", "max_steps=3"))
    figures = re.findall(r"^(\w+/\w+) ([-+.e\d]+)$", report, re.MULTILINE)
    return {key: float(value) for key, value in figures}


def interrupt(training: Training) -> dict[str, Any]:
    """SIGINT to the process group in the middle of a step: the step is finished and saved."""
    keys = shape_keys(training)
    before = len(training.steps())
    command = [sys.executable, *training.command(*keys, "max_steps=1000")]
    with subprocess.Popen(command, cwd=ROOT) as process:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # in this process, which is of the group
        while process.poll() is None and len(training.steps()) < before + 2:
            time.sleep(0.2)
        os.killpg(0, signal.SIGINT)
    if process.returncode != 128 + signal.SIGINT:
        sys.exit(process.returncode)  # its last line says why
    run_folder = training.folder / training.name
    return {"saved": [path.name for path in run_folder.glob("checkpoint-*")]}


PARTS = {  # the main path first
    "card": Part(120, card),
    "speed-4bit": Part(300, speed, UNSLOTH),
    "learns": Part(480, learns, UNSLOTH),
    "speed-vllm": Part(300, speed, "backend=unsloth engine=vllm"),
    "interrupt": Part(240, interrupt, "backend=transformers engine=vllm model.load_in_4bit=false"),
    "speed-16bit": Part(300, speed, f"{UNSLOTH} model.load_in_4bit=false"),
    "standby": Part(300, speed, f"{UNSLOTH} model.load_in_4bit=false vllm.standby=true"),
    "learns-vllm": Part(480, learns, "backend=unsloth engine=vllm"),
}


if __name__ == "__main__":
    main()
