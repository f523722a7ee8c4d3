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
from importlib.util import find_spec
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
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # without an installation
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
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOTrainer

    from pods import PodsTrainer, tasks

    class Stop(TrainerCallback):
        """Ends the training after its seconds."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = time.perf_counter() - began >= float(seconds)

    def correct(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
        return [float(is_right(*pair)) for pair in zip(completions, answer, strict=True)]

    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    rows = [
        {
            "prompt": tasks.render_prompt(row["question"], tokenizer=tokenizer),
            "answer": row["answer"],
        }
        for row in tasks.load("arithmetic", "train")
    ]
    arguments = arguments_of(method, out)
    trainer_class = PodsTrainer if method.startswith("pods") else GRPOTrainer
    trainer = trainer_class(
        model,
        correct,
        arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[Stop()],
    )
    began = time.perf_counter()
    result = trainer.train()
    rewards = [line["reward"] for line in trainer.state.log_history if "reward" in line][-LAST:]
    return {
        "method": method,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "engine": "vllm" if arguments.use_vllm else "transformers",
        "steps": result.global_step,
        "seconds_per_step": round(result.metrics["train_runtime"] / result.global_step, 3),
        "reward": round(sum(rewards) / len(rewards), 4),
        "right": greedy_right(trainer.model, tokenizer),
        "questions": 256,
    }


def arguments_of(method: str, out: str) -> Any:
    """The GRPOConfig of a method, or its PodsConfig."""
    import torch
    from trl import GRPOConfig

    from pods import PodsConfig

    n, m = METHODS[method]
    values = {
        "output_dir": f"{out}/{method}",
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
        "bf16": torch.cuda.is_available(),
        "use_vllm": torch.cuda.is_available() and find_spec("vllm") is not None,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": 0.3,
        "model_init_kwargs": {"dtype": "float32"},
    }
    if method.startswith("pods"):
        return PodsConfig(rollouts_per_prompt=n, **values)
    return GRPOConfig(**values)


def is_right(text: str, answer: str) -> bool:
    """Whether the last number is the answer: the graders need packages that a script does not."""
    return re.findall(r"\d+", text)[-1:] == [answer]


def greedy_right(model: Any, tokenizer: Any) -> int:
    """How many of the 256 test sums greedy completions get right."""
    from transformers import pipeline

    from pods import tasks

    questions = tasks.load("arithmetic", "test")
    generate = pipeline("text-generation", model=model.eval(), tokenizer=tokenizer)
    outputs = generate(
        [tasks.render_prompt(question, tokenizer=tokenizer) for question in questions["question"]],
        batch_size=64,
        max_new_tokens=TOKENS,
        do_sample=False,
        return_full_text=False,
    )
    texts = [output["generated_text"] for (output,) in outputs]
    return sum(map(is_right, texts, questions["answer"]))


if __name__ == "__main__":
    main()
