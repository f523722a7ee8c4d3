"""What the suite does on a GPU: parts in order of worth, ten minutes a call.

    uv run benchmarks/gpu.py [output_dir=checkpoints/gpu]

A part is a few commands; what they print is in <output_dir>/<part>.txt. A part with that file is
not run again; one that failed, or was not done in its time, is tried again at the next call.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pods.config.place import PACKAGE

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
# What the parts run, with Python. The main path is that of gsm8k_qwen on sums, by random
# weights; the quickstart is resumed and scored.
MAIN_PATH = (
    "benchmarks/gpu.py policy={folder}/random",
    "train.py trial=true experiment=gsm8k_qwen task=arithmetic model.path={folder}/random "
    "model.pad_token=null output_dir={folder} run={name} {keys}",
)
TRAIN = (
    "train.py model.dtype=bfloat16 budget.train_seconds=null evaluation.every_seconds=null "
    "checkpoint.every_seconds=null checkpoint.every_steps=20 output_dir={folder} run={name} {keys}"
)
QUICKSTART = (
    f"{TRAIN} max_steps=40",
    f"{TRAIN} max_steps=60",
    "evaluate_run.py run={name} output_dir={folder} results_dir={folder}/results temperature=0 "
    "questions=64",
)
SIGNAL = (
    "scripts/plan.py run=learns output_dir={folder} results_dir={folder}/results "
    "out_dir={folder}/figures",
)
UNSLOTH = "backend=unsloth engine=unsloth"
VLLM = "backend=unsloth engine=vllm"
SIXTEEN_BIT = "model.load_in_4bit=false"
PARTS = {  # seconds at most, commands, keys of the training
    "speed-4bit": (300, MAIN_PATH, UNSLOTH),
    "learns": (480, QUICKSTART, UNSLOTH),
    "speed-vllm": (300, MAIN_PATH, VLLM),
    "speed-16bit": (300, MAIN_PATH, f"{UNSLOTH} {SIXTEEN_BIT}"),
    "speed-standby": (300, MAIN_PATH, f"{UNSLOTH} {SIXTEEN_BIT} vllm.standby=true"),
    "learns-vllm": (480, QUICKSTART, VLLM),
    "signal": (300, SIGNAL, ""),
}


def main() -> None:
    """The parts that are not done, for ten minutes."""
    arguments = sys.argv[1:] or ["output_dir=checkpoints/gpu"]
    key, _, value = arguments[0].partition("=")
    if key == "policy":
        return write_policy(value)
    if key != "output_dir" or len(arguments) > 1:
        sys.exit(f"{' '.join(arguments)}: set output_dir=<folder>, or nothing")
    folder = Path(value).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + CALL_SECONDS
    failed = []
    for name, (seconds, _, _) in PARTS.items():
        file = folder / f"{name}.txt"
        if not file.exists() and time.monotonic() + seconds <= end:
            run(commands(name, folder), seconds, file)
            if not file.exists():
                failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def commands(name: str, folder: Path) -> list[list[str]]:
    """Of a part."""
    _, texts, keys = PARTS[name]
    return [text.format(folder=folder, name=name, keys=keys).split() for text in texts]


def run(commands: list[list[str]], seconds: float, file: Path) -> None:
    """Write what the commands of Python print, if all of them succeed in time."""
    end = time.monotonic() + seconds
    shown = ""
    for command in commands:
        print(*command, flush=True)
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=PACKAGE.parent,
            text=True,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        try:
            printed, _ = process.communicate(timeout=end - time.monotonic())
        except subprocess.TimeoutExpired:
            print(f"{file.stem}: not done in {seconds} s")
            return
        finally:
            if process.poll() is None:  # also at Ctrl-C, with all that it started
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            print(f"{file.stem}: failed, as its last lines above say")
            return
        print(printed, flush=True)
        shown += printed
    file.write_text(shown)


def write_policy(folder: str) -> None:
    """Random weights of Qwen2.5-3B's shape and the tiny policy's tokenizer. In a vocabulary of this
    size hardly any completion ends."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if (Path(folder) / "tokenizer.json").is_file():
        return
    tiny = PACKAGE / "tiny_policy"
    shape = AutoConfig.from_pretrained(tiny, **QWEN_3B)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)


if __name__ == "__main__":
    main()
