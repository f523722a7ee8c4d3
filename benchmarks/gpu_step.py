"""Seconds and memory of a training step on this card: GRPO, PODS and GRPO-GA at the paper's sizes.

    uv run benchmarks/gpu_step.py             # NVIDIA GPU with the gpu extra; a quarter of an hour
    uv run benchmarks/gpu_step.py --cpu       # tries the script on a tiny shape for two steps
    uv run benchmarks/gpu_step.py --write     # also writes the table to benchmarks/results/

The model has Qwen2.5-3B's exact shape and random weights (no download). It ends a completion about
once in 150,000 tokens, so completions have the length asked for. Every arm runs train.py in its own
process. Published on an L40S: GRPO 16/16 7.6 s, PODS 64/16 10.1 s.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # this folder's own rewards.py would hide the package

from pods.clock import STEP_PHASES as PHASES  # noqa: E402
from pods.runs import read_metrics  # noqa: E402

SMALL = {
    "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096,
    "tie_word_embeddings": True, "max_position_embeddings": 2048,
}  # fmt: skip
PROMPT_TOKENS = 192  # about what a GSM8K question takes with its system text


@dataclass
class Arm:
    name: str
    algorithm: str
    n: int
    m: int


GPU_ARMS = [
    Arm("GRPO", "grpo", 16, 16),
    *(Arm("PODS", "pods", n, 16) for n in (32, 64, 128, 256)),
    Arm("GRPO-GA", "grpo_ga", 64, 64),
]
CPU_ARMS = [
    Arm("GRPO", "grpo", 4, 4),
    Arm("PODS", "pods", 16, 4),
    Arm("GRPO-GA", "grpo_ga", 16, 16),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="a tiny shape, two steps")
    parser.add_argument("--steps", type=int, help="of each arm; the first is not counted")
    parser.add_argument("--completion", type=int, help="tokens of every completion")
    parser.add_argument(
        "--write", action="store_true", help="keep the table in benchmarks/results/"
    )
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        print("skipped: no CUDA device; --cpu tries the script on a tiny shape", file=sys.stderr)
        return 3
    steps = options.steps or (2 if options.cpu else 6)
    completion = options.completion or (16 if options.cpu else 256)
    device = "cpu" if options.cpu else "cuda"
    with tempfile.TemporaryDirectory() as folder:
        write_random_model(Path(folder) / "model", "small" if options.cpu else "3b")
        rows = []
        for arm in CPU_ARMS if options.cpu else GPU_ARMS:
            print(f"{arm.name} {arm.n}/{arm.m} ...", file=sys.stderr)
            rows.append(row(arm, run(arm, Path(folder), steps, completion, device), completion))
    table = markdown(rows, device, completion)
    print(table)
    if options.write:
        name = f"gpu_step-{device_name(device).replace(' ', '-')}-{date.today()}.md"
        (ROOT / "benchmarks" / "results").mkdir(exist_ok=True)
        (ROOT / "benchmarks" / "results" / name).write_text(table)
    return 0


def write_random_model(folder: Path, shape: str) -> None:
    """A model of Qwen2.5-3B's shape (or a small one) with random weights, and a tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    large = ROOT / "benchmarks" / "shapes" / "qwen2.5-3b-instruct.json"
    config = AutoConfig.for_model(**(SMALL if shape == "small" else json.loads(large.read_text())))
    config.eos_token_id, config.pad_token_id, config.bos_token_id = 1, 0, None
    torch.manual_seed(0)
    dtype = torch.float32 if shape == "small" else torch.bfloat16
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.save_pretrained(folder)
    write_tokenizer(folder, config.vocab_size)


def write_tokenizer(folder: Path, size: int) -> None:
    """One token per character of the arithmetic questions; made-up words fill the vocabulary."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = ["<pad>", "<eos>", "<unk>", *"0123456789+-=?<>/ \n", *"abcdefghijklmnopqrstuvwxyz"]
    vocabulary = {
        word: i for i, word in enumerate([*known, *(f"w{i}" for i in range(size))][:size])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    fast.save_pretrained(folder)


def run(arm: Arm, folder: Path, steps: int, completion: int, device: str) -> list[dict[str, Any]]:
    """The metric lines of train.py without the first step, which compiles."""
    own = {
        "cpu": ["backend=transformers", "model.dtype=float32", "model.load_in_4bit=false",
                "lora.rank=8", "backend.gradient_checkpointing=false"],
        "cuda": ["backend=unsloth", "model.dtype=bfloat16", "model.load_in_4bit=true",
                 "lora.rank=64", "backend.gradient_checkpointing=true"],
    }  # fmt: skip
    filler = "a" * (PROMPT_TOKENS - 16)  # a character is a token; a question has up to 16
    sizes = [f"kept_per_prompt={arm.m}", f"micro_batch_size={min(arm.m, 16)}"]
    if arm.algorithm != "grpo":
        sizes.append(f"rollouts_per_prompt={arm.n}")
    command = [
        sys.executable, str(ROOT / "train.py"), "experiment=quickstart", "run=bench",
        f"algorithm={arm.algorithm}", f"task.system={filler}",
        f"model.path={folder / 'model'}", "model.name=random", "prompts_per_step=1", *sizes,
        f"sampling.max_completion_length={completion}",
        f"sampling.max_prompt_length={PROMPT_TOKENS}",
        "optimizer.learning_rate=5e-6", "loss.type=grpo", f"max_steps={steps}", "resume=never",
        "budget.train_seconds=null", "checkpoint.every_seconds=null", "logger=[]",
        f"output_dir={folder / f'{arm.name}-{arm.n}'}", *own[device],
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{arm.name} {arm.n}/{arm.m} failed:\n{done.stderr[-3000:]}")
    return read_metrics(folder / f"{arm.name}-{arm.n}" / "bench" / "metrics.jsonl")[1:]


def row(arm: Arm, metrics: list[dict[str, Any]], completion: int) -> dict[str, str]:
    """One row of the table: means over the steps, and the largest peak and gap."""
    seconds = {phase: mean(step[f"seconds/{phase}"] for step in metrics) for phase in PHASES}
    most = {
        name: max(step.get(name, float("nan")) for step in metrics)
        for name in ("peak_memory_gib/generate", "peak_memory_gib/update", "engine/logprob_gap")
    }
    return {
        "arm": f"{arm.name} {arm.n}/{arm.m}",
        **{f"{phase} s": f"{seconds[phase]:.3f}" for phase in PHASES},
        "step s": f"{sum(seconds.values()):.3f}",
        "length": f"{mean(step['all/completion_length_mean'] for step in metrics):.0f}",
        "tokens/s": f"{arm.n * completion / seconds['generate']:.0f}",
        **{name: f"{value:.3g}" for name, value in most.items()},
    }


def markdown(rows: list[dict[str, str]], device: str, completion: int) -> str:
    head = (
        f"{device_name(device)}, {date.today()}, torch {torch.__version__}, completions of "
        f"{completion} tokens.\n"
    )
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(cells.values()) for cells in rows)]
    return "\n".join([head, *("| " + " | ".join(line) + " |" for line in lines)]) + "\n"


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"CPU {platform.machine()}"


if __name__ == "__main__":
    sys.exit(main())
