"""Seconds that our decode loop saves over TRL's generate: a ratio, measured in turns in one run.

    OMP_NUM_THREADS=1 taskset -c 0 uv run benchmarks/engines.py
Trains the quickstart for 60 steps and writes results/generation.json: 2 x 64 rollouts a step of the
live policy. Nothing else should run beside it.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, ROLLOUTS, PROMPTS, STEPS = 24, 64, 2, 60
Side = Callable[[int, list[list[int]]], int]  # (step, its prompts) -> tokens of its rollouts

sys.path.insert(0, str(ROOT))


def main() -> None:
    keys = ["run=run", f"max_steps={STEPS}", f"checkpoint.every_steps={STEPS}"]
    keys += ["budget.train_seconds=null", "checkpoint.every_seconds=null"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(ROOT / "train.py"), *keys], cwd=folder, check=True)
        ratios = generation(Path(folder) / "checkpoints" / "run")
    cores = f"{os.cpu_count()} cores ({len(os.sched_getaffinity(0))} used), {platform.machine()}"
    text = json.dumps({**ratios, "date": date.today().isoformat(), "machine": cores}, indent=1)
    (ROOT / "benchmarks" / "results" / "generation.json").write_text(text + "\n")
    print(text)


def generation(run: Path) -> dict[str, Any]:
    """Median seconds of a step on each side, and their ratio."""
    import pandas as pd

    sides, prompts = prepare(run)
    rows = []
    for turn in range(ROUNDS + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            tokens = side(turn, prompts[PROMPTS * turn : PROMPTS * (turn + 1)])
            rows.append({"side": name, "seconds": time.perf_counter() - start, "tokens": tokens})
    measured = pd.DataFrame(rows[len(sides) :]).groupby("side")  # without the warm-up
    medians, sums = measured["seconds"].median(), measured.sum()
    per_token = sums["seconds"] / sums["tokens"]
    return {
        "ratio": round(medians["ours"] / medians["TRL"], 3),
        "ratio_per_token": round(per_token["ours"] / per_token["TRL"], 3),  # lengths are drawn
        "seconds": medians.round(4).to_dict(),
        "tokens": sums["tokens"].to_dict(),
        "rounds": ROUNDS,
        "rollouts": ROLLOUTS * PROMPTS,
    }


def prepare(run: Path) -> tuple[dict[str, Side], list[list[int]]]:
    """The two ways to generate a step's rollouts, and the prompts."""
    import torch
    from peft import PeftModel

    from pods.config.command import load_config
    from pods.engines import Limits, LivePolicy, Request, Work, choose, seed_of
    from pods.evaluation import questions
    from pods.models import policy

    torch.set_num_threads(1)
    config = load_config(run / ".hydra" / "config.yaml")
    tokenizer = policy.load_tokenizer(config.model.path)
    base = policy.load_transformers(config, tokenizer).model
    model = PeftModel.from_pretrained(base, run / f"checkpoint-{STEPS}", is_trainable=True).train()
    rows = questions.load(config.task.name, "train", config, tokenizer).rows
    sampling = choose.sampling(config)
    engine = choose.build("transformers", config, tokenizer, sampling, Limits(), config.lora.rank)
    settings = {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k")}
    settings |= {"max_new_tokens": sampling.max_tokens, "do_sample": True}
    settings["pad_token_id"] = tokenizer.pad_token_id

    def ours(step: int, batch: list[list[int]]) -> int:
        seeds = [[seed_of(step, p, i) for i in range(ROLLOUTS)] for p in range(PROMPTS)]
        requests = [Request(*pair) for pair in zip(batch, seeds, strict=True)]
        ((_, groups),) = engine.generate([Work(requests, LivePolicy(model, step))])
        return sum(len(completion.token_ids) for group in groups for completion in group)

    def trl(_: int, batch: list[list[int]]) -> int:
        """_generate_single_turn: every row padded and generated alike, without gradients."""
        repeated = [{"input_ids": prompt} for prompt in batch for _ in range(ROLLOUTS)]
        inputs = tokenizer.pad(repeated, padding_side="left", return_tensors="pt")
        model.eval()
        with torch.no_grad():
            output = model.generate(**inputs, **settings)
        model.train()
        return int((output[:, inputs["input_ids"].shape[1] :] != tokenizer.pad_token_id).sum())

    return {"TRL": trl, "ours": ours}, [row.prompt_ids for row in rows]


if __name__ == "__main__":
    main()
