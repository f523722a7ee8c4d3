"""What the suite does on a GPU: parts in order of worth, one JSON line each, ten minutes a call.

    uv run benchmarks/gpu.py             # the parts that are not done in <output_dir>/gpu.jsonl
    uv run benchmarks/gpu.py cpu=true    # every part on a tiny shape, without Unsloth and vLLM
Both take output_dir=checkpoints/gpu. A part is a list of commands, its line what they print. No
package is imported here: where one is missing, a part's line says so.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pods import files

ROOT = Path(__file__).resolve().parents[1]
CALL_SECONDS = 600
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
# The main path without the data of GSM8K, by the tokenizer of the tiny policy.
MAIN_PATH = "trial=true experiment=gsm8k_qwen task=arithmetic model.pad_token=null"
TINY_PATH = "trial=true rollouts_per_prompt=4 sampling.max_completion_length=24"
UNSLOTH = "backend=unsloth engine=unsloth"
VLLM = "backend=unsloth engine=vllm"
SIXTEEN_BIT = "model.load_in_4bit=false"
PARTS = {  # seconds at most, keys of a training on a GPU; the main path first
    "speed-4bit": (300, UNSLOTH),
    "learns": (480, UNSLOTH),
    "speed-vllm": (300, VLLM),
    "speed-16bit": (300, f"{UNSLOTH} {SIXTEEN_BIT}"),
    "speed-standby": (300, f"{UNSLOTH} {SIXTEEN_BIT} vllm.standby=true"),
    "learns-vllm": (480, VLLM),
}


def main() -> None:
    keys = {"cpu": "false", "output_dir": "checkpoints/gpu"}
    for argument in sys.argv[1:]:
        key, _, value = argument.partition("=")
        if key not in keys:
            sys.exit(f"{argument}: no such key; set {', '.join(keys)}")
        keys[key] = value
    folder = Path(keys["output_dir"]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run_all(folder, keys["cpu"] == "true")


def run_all(folder: Path, cpu: bool) -> None:
    """The parts that are not done, for ten minutes; those that failed come last."""
    started = time.monotonic()
    file = folder / "gpu.jsonl"
    before = files.read_lines(file)
    failed = {line["part"] for line in before if "failed" in line}
    done = {line["part"] for line in before if "failed" not in line}
    for name in sorted(PARTS, key=lambda name: name in failed):
        seconds, _ = PARTS[name]
        seconds_left = CALL_SECONDS - (time.monotonic() - started)
        if name in done or seconds > seconds_left:
            continue
        line = {"part": name} | outcome(commands(name, folder, cpu), seconds)
        print(json.dumps(line), flush=True)
        files.append(file, line)


def outcome(commands: list[list[str]], seconds: float) -> dict[str, Any]:
    """What the commands of Python print, a line each, or why one of them failed."""
    end = time.monotonic() + seconds
    shown: list[str] = []
    for command in commands:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        try:
            stdout, stderr = process.communicate(timeout=end - time.monotonic())
        except subprocess.TimeoutExpired:
            return {"failed": f"not done in {seconds} s"}
        finally:
            if process.poll() is None:  # also at Ctrl-C, with all that it started
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            return {"failed": stderr.strip().split("\n")[-1]}
        shown += stdout.splitlines()
    return {"shown": shown}


def commands(name: str, folder: Path, cpu: bool) -> list[list[str]]:
    """Of a part: three steps by the main path's keys, or the quickstart, with a resume, scored."""
    _, keys = PARTS[name]
    if cpu:
        keys = "backend=transformers engine=transformers"
    train = ["train.py", *keys.split(), f"output_dir={folder}", f"run={name}"]
    if name.startswith("learns"):
        every = 1 if cpu else 20
        train += [
            "model.dtype=bfloat16",
            "budget.train_seconds=null",
            "evaluation.every_seconds=null",
        ]
        train += ["checkpoint.every_seconds=null", f"checkpoint.every_steps={every}"]
        places = [f"run={name}", f"output_dir={folder}", f"results_dir={folder / 'results'}"]
        return [
            [*train, f"max_steps={2 * every}"],
            [*train, f"max_steps={3 * every}"],  # goes on where the first ended
            ["evaluate_run.py", *places, "temperature=0", "questions=64"],
        ]
    if cpu:
        return [[*train, *TINY_PATH.split()]]
    policy = folder / "random"
    write = f"from benchmarks.gpu import write_policy; write_policy({str(policy)!r})"
    return [["-c", write], [*train, *MAIN_PATH.split(), f"model.path={policy}"]]


def write_policy(folder: str) -> None:
    """Random weights of Qwen2.5-3B's shape and the tiny policy's tokenizer. In a vocabulary of this
    size hardly any completion ends."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if (Path(folder) / "tokenizer.json").is_file():
        return
    tiny = ROOT / "pods" / "tiny_policy"
    shape = AutoConfig.from_pretrained(tiny, **QWEN_3B)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)


if __name__ == "__main__":
    main()
