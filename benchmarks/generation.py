"""Generation in training: transformers' generate, as TRL calls it, against our decode loop.

    OMP_NUM_THREADS=1 taskset -c 0 uv run benchmarks/generation.py   # --write: results/generation.*

The quickstart trains for 60 steps first. Then both sides complete the same prompts from the live
policy of those weights in turns, 2 x 64 rollouts a step, on one core. Lengths vary with the draws,
so seconds are also compared per token (those up to the end token count, on both sides). Nothing
else should run beside it.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "generation"
ROUNDS = 24
ROLLOUTS, PROMPTS, TRAINING_STEPS = 64, 2, 60

sys.path.insert(0, str(ROOT))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = prepare(train(Path(folder)))
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        tokens: dict[str, int] = dict.fromkeys(sides, 0)
        for turn in range(ROUNDS + 1):
            for name, side in sides.items():
                start = time.perf_counter()
                lengths = side(turn)
                if turn:  # the first is a warm-up
                    seconds[name].append(time.perf_counter() - start)
                    tokens[name] += sum(lengths)
    report(seconds, tokens)


def prepare(checkpoint: Path) -> dict[str, Callable[[int], list[int]]]:
    """The two ways to generate for a step; each returns the lengths of its completions."""
    import torch

    from pods.config import saved
    from pods.engines import Limits, Live, Request, Sampling, Work, seed_of
    from pods.engines.transformers import TransformersEngine
    from pods.evaluation import questions
    from pods.models import policy

    torch.set_num_threads(1)
    config = saved.load(checkpoint.parent / ".hydra" / "config.yaml")
    tokenizer = policy.load_tokenizer(config.model.path)
    model = live(config, tokenizer, checkpoint)
    prompts = questions.load(config.task.name, "train", config, tokenizer).prompt_ids
    drawn = config.sampling
    length = drawn.max_completion_length
    sampling = Sampling(drawn.temperature, drawn.top_p, drawn.top_k, length, 512)
    engine = TransformersEngine(config, tokenizer, sampling, Limits())

    def asked(step: int) -> list[list[int]]:
        return prompts[PROMPTS * step : PROMPTS * (step + 1)]

    def ours(step: int) -> list[int]:
        requests = [
            Request(prompt, [seed_of(step, p, i) for i in range(ROLLOUTS)])
            for p, prompt in enumerate(asked(step))
        ]
        ((_, groups),) = engine.generate([Work(requests, Live(model, step))])
        return [len(c.token_ids) for group in groups for c in group]

    return {"TRL": lambda step: as_trl(model, tokenizer, asked(step), sampling), "ours": ours}


def train(folder: Path) -> Path:
    """The last checkpoint of the quickstart after TRAINING_STEPS steps."""
    keys = ["run=run", f"output_dir={folder}", f"max_steps={TRAINING_STEPS}"]
    keys += ["budget.train_seconds=null", "checkpoint.every_seconds=null"]
    subprocess.run([sys.executable, str(ROOT / "train.py"), *keys], cwd=folder, check=True)
    return folder / "run" / f"checkpoint-{TRAINING_STEPS}"


def live(config: Any, tokenizer: Any, checkpoint: Path) -> Any:
    """The policy as in training: its adapter beside the weights, in training mode."""
    from peft import PeftModel

    from pods.models import policy

    base = policy.load_transformers(config, tokenizer).model
    return PeftModel.from_pretrained(base, checkpoint, is_trainable=True).train()


def as_trl(model: Any, tokenizer: Any, prompts: list[list[int]], sampling: Any) -> list[int]:
    """TRL's _generate_single_turn with its GenerationConfig: every row padded and generated alike,
    without gradients, in evaluation mode."""
    import torch
    from transformers import GenerationConfig

    rows = [{"input_ids": prompt} for prompt in prompts for _ in range(ROLLOUTS)]
    inputs = tokenizer.pad(rows, padding_side="left", return_tensors="pt")
    settings = GenerationConfig(
        max_new_tokens=sampling.max_tokens,
        do_sample=True,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model.eval()
    with torch.no_grad():
        output = model.generate(**inputs, generation_config=settings)
    model.train()
    completions = output[:, inputs["input_ids"].shape[1] :]
    ended = completions == tokenizer.eos_token_id
    lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, completions.shape[1])
    return lengths.tolist()


def report(seconds: dict[str, list[float]], tokens: dict[str, int]) -> None:
    """Print the table; with --write also write it with its origin."""
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    per_token = {name: sum(seconds[name]) / tokens[name] for name in seconds}
    found = {
        "ratio": round(medians["ours"] / medians["TRL"], 3),
        "ratio_per_token": round(per_token["ours"] / per_token["TRL"], 3),
        "seconds": {name: round(value, 4) for name, value in medians.items()},
        "tokens": tokens,
        "rounds": ROUNDS,
        "rollouts": ROLLOUTS * PROMPTS,
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores ({len(os.sched_getaffinity(0))} used), "
        f"{platform.machine()}",
    }
    lines = ["| side | median seconds | tokens |", "|---|---|---|"]
    lines += [f"| {name} | {medians[name]:.3f} | {tokens[name]} |" for name in seconds]
    table = "\n".join(lines)
    print(f"{table}\n\nours / TRL: {found['ratio']} ({found['ratio_per_token']} per token)")
    if "--write" in sys.argv:
        RESULT.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
        facts = f"{ROUNDS} rounds of {found['rollouts']} rollouts; {found['machine']}; "
        text = f"# Generation in training\n\n{facts}{found['date']}\n\n{table}\n\n"
        text += (
            f"ours / TRL: {found['ratio']} of the seconds, {found['ratio_per_token']} per token\n"
        )
        RESULT.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
