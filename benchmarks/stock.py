"""Stock TRL against PodsTrainer on one card: the same model, sums, seed and seconds.

    python benchmarks/stock.py model=<folder> [seconds=80] [out=<folder>]

grpo-16 and grpo-64: trl.GRPOTrainer with n = m; pods-64-16: PodsTrainer with n = 64 and m = 16. All
parameters are trained, float32 weights in bfloat16 autocast, and TRL's own vLLM generates where
CUDA and vLLM are there. Each method has a process; the last line of one is a JSON object.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

METHODS = {"grpo-16": (16, 16), "grpo-64": (64, 64), "pods-64-16": (64, 16)}  # n, m
DEFAULTS = {"model": "pods/tiny_policy", "seconds": "80", "out": "checkpoints/stock", "method": ""}
PROMPTS = 4  # of a step
TOKENS = 64  # of a completion
LAST = 20  # steps of the mean reward


def main() -> None:
    """All methods one after another, or the one that is named."""
    settings = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    unknown = settings.keys() - DEFAULTS.keys()
    settings = DEFAULTS | settings
    if unknown or settings["method"] not in ("", *METHODS):
        sys.exit(f"{' '.join(sys.argv[1:])}: set model, seconds, out or method={'|'.join(METHODS)}")
    if settings["method"]:
        return print(json.dumps(run(**settings)), flush=True)
    failed = []
    for method in METHODS:
        arguments = [f"{key}={value}" for key, value in (settings | {"method": method}).items()]
        if subprocess.run([sys.executable, __file__, *arguments], check=False).returncode:
            failed.append(method)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(model: str, seconds: str, out: str, method: str) -> dict[str, Any]:
    """A training of `seconds` after loading; what is printed of it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # without an installation
    from importlib.util import find_spec

    import torch
    import trl
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback

    from pods import PodsConfig, PodsTrainer, tasks

    n, m = METHODS[method]
    cuda = torch.cuda.is_available()
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    spent = {"score": 0.0, "update": 0.0, "step": 0.0}  # s

    def now() -> float:
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def correct(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
        start = time.perf_counter()
        values = [float(is_right(*pair)) for pair in zip(completions, answer, strict=True)]
        spent["score"] += time.perf_counter() - start
        return values

    class Stop(TrainerCallback):
        """Ends the training after its seconds, and times its steps."""

        began = 0.0
        steps = 0

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            self.began = now()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            spent["step"] = now() - self.began
            self.steps = state.global_step
            control.should_training_stop = spent["step"] >= float(seconds)

    base = PodsTrainer if method.startswith("pods") else trl.GRPOTrainer

    class Timed(base):
        """Times forward and backward passes: the rest of a step is generation, score, optimiser."""

        def compute_loss(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            self.update_began = now()
            return super().compute_loss(*args, **kwargs)

        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            loss = super().training_step(*args, **kwargs)
            spent["update"] += now() - self.update_began
            return loss

    rows = [
        {
            "prompt": tasks.render_prompt(row["question"], tokenizer=tokenizer),
            "answer": row["answer"],
        }
        for row in tasks.load("arithmetic", "train")
    ]
    values = {
        "num_generations": m,
        "max_completion_length": TOKENS,
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": PROMPTS * m // 16,
        "learning_rate": 1e-5,
        "beta": 0.0,
        "seed": 0,
        "max_steps": 100_000,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "bf16": cuda,
        "use_vllm": cuda and find_spec("vllm") is not None,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": 0.3,
        "model_init_kwargs": {"dtype": "float32"},
    }
    if base is PodsTrainer:
        arguments = PodsConfig(f"{out}/{method}", rollouts_per_prompt=n, **values)
    else:
        arguments = trl.GRPOConfig(f"{out}/{method}", **values)
    stop = Stop()
    trainer = Timed(
        model,
        correct,
        arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[stop],
    )
    trainer.train()
    history = [line["reward"] for line in trainer.state.log_history if "reward" in line]
    share, interval = accuracy(trainer.model, tokenizer)
    generation = spent["step"] - spent["score"] - spent["update"]
    phases = {"generation": generation, "score": spent["score"], "update": spent["update"]}
    return {
        "method": method,
        "device": torch.cuda.get_device_name() if cuda else "CPU",
        "engine": "vllm" if values["use_vllm"] else "transformers",
        "steps": stop.steps,
        "seconds_per_step": {name: round(s / stop.steps, 3) for name, s in phases.items()},
        "reward": round(sum(history[-LAST:]) / len(history[-LAST:]), 4),
        "accuracy": round(share, 4),
        "ci95": [round(end, 4) for end in interval],
    }


def is_right(text: str, answer: str) -> bool:
    """Whether the last number is the answer: the graders need packages that a script does not."""
    return re.findall(r"\d+", text)[-1:] == [answer]


def accuracy(model: Any, tokenizer: Any) -> tuple[float, tuple[float, float]]:
    """Greedy accuracy of the 256 test sums, and Wilson's interval of 95 %."""
    import torch

    from pods import tasks

    model.eval()
    right, questions = 0, list(tasks.load("arithmetic", "test"))
    for start in range(0, len(questions), 64):
        part = questions[start : start + 64]
        prompts = [tasks.render_prompt(row["question"], tokenizer=tokenizer) for row in part]
        batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        batch = {key: batch[key].to(model.device) for key in ("input_ids", "attention_mask")}
        with torch.no_grad():
            ids = model.generate(**batch, max_new_tokens=TOKENS, do_sample=False)
        width = batch["input_ids"].shape[1]
        texts = tokenizer.batch_decode(ids[:, width:], skip_special_tokens=True)
        right += sum(is_right(text, row["answer"]) for text, row in zip(texts, part, strict=True))
    count, z = len(questions), 1.96
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * (share * (1 - share) / count + (z / (2 * count)) ** 2) ** 0.5 / (1 + z * z / count)
    return share, (middle - half, middle + half)


if __name__ == "__main__":
    main()
