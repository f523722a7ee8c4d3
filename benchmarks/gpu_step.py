"""Seconds and memory of a training step on this card: GRPO, PODS and GRPO-GA at the paper's sizes.

    uv run benchmarks/gpu_step.py --write    # NVIDIA GPU, gpu extra; table to benchmarks/results/
    uv run benchmarks/gpu_step.py --cpu      # tries the script on a tiny shape for two steps

The model has the shape of Qwen2.5-3B and random weights: its completions reach the limit. Every arm
runs train.py in a new process. Published on an L40S: GRPO 16/16 7.6 s, PODS 64/16 10.1 s.
"""

import json
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # this folder's rewards.py would hide the package

from pods.clock import STEP_PHASES  # noqa: E402
from pods.engines.guard import FIRST_STEPS  # noqa: E402
from pods.figures.tables import markdown  # noqa: E402
from pods.runs import read_metrics  # noqa: E402

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 4096,
         "num_attention_heads": 4}  # fmt: skip
# A GSM8K prompt has about 192 tokens: here 176 of the system text and up to 16 of the question. The
# limit leaves room for gsm8k_qwen's 1024: below 512 in all Unsloth checkpoints in another way.
OVERRIDES = f"""experiment=quickstart run=bench resume=never logger=[] model.name=random
    prompts_per_step=1 optimizer.learning_rate=5e-6 loss.type=grpo sampling.max_prompt_length=768
    backend.warmup=true
    budget.train_seconds=null checkpoint.every_seconds=null task.system={"a" * 176}""".split()
CPU = ["backend=transformers", "max_steps=4"]
GPU = ["backend=unsloth", "backend.gradient_checkpointing=true", "model.dtype=bfloat16",
       "model.load_in_4bit=true", "lora.rank=64", "max_steps=8"]  # fmt: skip


class Arm(NamedTuple):
    name: str
    algorithm: str
    n: int
    m: int


def main() -> None:
    cpu = "--cpu" in sys.argv
    if not cpu and not torch.cuda.is_available():
        print("skipped: no CUDA device; --cpu tries the script on a tiny shape", file=sys.stderr)
        sys.exit(3)
    m, ns, settings, length = (4, (16,), CPU, 16) if cpu else (16, (32, 64, 128, 256), GPU, 256)
    arms = [Arm("GRPO", "grpo", m, m), *(Arm("PODS", "pods", n, m) for n in ns)]
    arms.append(Arm("GRPO-GA", "grpo_ga", 4 * m, 4 * m))
    settings = [*OVERRIDES, *settings, f"sampling.max_completion_length={length}"]
    with tempfile.TemporaryDirectory() as folder:
        write_random_model(Path(folder) / "model", "small" if cpu else "3b")
        rows = [row(arm, run(arm, Path(folder), settings), length) for arm in arms]
    device = f"CPU {platform.machine()}" if cpu else torch.cuda.get_device_name()
    facts = f"{device}, {date.today()}, torch {torch.__version__}, completions of {length} tokens."
    table = f"{facts}\n\n{markdown(rows)}\n"
    print(table, end="")
    if "--write" in sys.argv:
        name = f"gpu_step-{device.replace(' ', '-')}-{date.today()}.md"
        (ROOT / "benchmarks" / "results" / name).write_text(table)


def write_random_model(folder: Path, shape: str) -> None:
    """A model of Qwen2.5-3B's shape (or a small one) with random weights, and a tokenizer."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    keys = json.loads((ROOT / "benchmarks" / "shapes" / "qwen2.5-3b-instruct.json").read_text())
    keys |= {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
    config = AutoConfig.for_model(**keys | (SMALL if shape == "small" else {}))
    dtype = torch.float32 if shape == "small" else torch.bfloat16
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(folder)
    # One token per character of the arithmetic questions; made-up words fill the vocabulary.
    words = ["<pad>", "<eos>", "<unk>", *"0123456789+-=?<>/ \n", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"w{i}" for i in range(config.vocab_size - len(words))]
    model = models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    special = {f"{name}_token": f"<{name}>" for name in ("eos", "pad", "unk")}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    fast.save_pretrained(folder)


def run(arm: Arm, folder: Path, settings: list[str]) -> list[dict[str, Any]]:
    """The metric lines of train.py."""
    out = folder / f"{arm.name}-{arm.n}"
    command = [sys.executable, str(ROOT / "train.py"), *settings, f"algorithm={arm.algorithm}"]
    command += [f"kept_per_prompt={arm.m}", f"micro_batch_size={min(arm.m, 16)}"]
    command += [] if arm.algorithm == "grpo" else [f"rollouts_per_prompt={arm.n}"]
    command += [f"model.path={folder / 'model'}", f"output_dir={out}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{arm.name} {arm.n}/{arm.m} failed:\n{done.stderr[-3000:]}")
    return read_metrics(out / "bench" / "metrics.jsonl")


def row(arm: Arm, metrics: list[dict[str, Any]], length: int) -> dict[str, str]:
    """One row of the table: means over the steps after those that the guard checks, whose forward
    passes count as generation, and the largest peak and gap of all steps."""
    timed = metrics[FIRST_STEPS:]
    seconds = {phase: mean(step[f"seconds/{phase}"] for step in timed) for phase in STEP_PHASES}
    peaks = ("peak_memory_gib/generate", "peak_memory_gib/update", "engine/logprob_gap")
    most = {name: max(step.get(name, float("nan")) for step in metrics) for name in peaks}
    return {
        "arm": f"{arm.name} {arm.n}/{arm.m}",
        **{f"{phase} s": f"{value:.3f}" for phase, value in seconds.items()},
        "step s": f"{sum(seconds.values()):.3f}",
        "length": f"{mean(step['all/completion_length_mean'] for step in metrics):.0f}",
        "tokens/s": f"{arm.n * length / seconds['generate']:.0f}",
        **{name: f"{value:.3g}" for name, value in most.items()},
    }


if __name__ == "__main__":
    main()
