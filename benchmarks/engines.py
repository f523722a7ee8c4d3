"""Seconds that our two engines save, as ratios; both sides are measured in turns in one run.

    uv run benchmarks/engines.py generation    # our decode loop over TRL's generate
    uv run benchmarks/engines.py evaluation    # merging every checkpoint over adapters
Both train the quickstart for 60 steps and write results/<name>.json. generation: 2 x 64 rollouts a
step of the live policy, on one core (OMP_NUM_THREADS=1 taskset -c 0). evaluation: evaluate_run.py
on 12 checkpoints; merged models load one after the other, in one process (reload) or in a process
each (process). Nothing else should run beside it.
"""

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
ROUNDS, ROLLOUTS, PROMPTS, STEPS = 24, 64, 2, 60
Side = Callable[[int, list[list[int]]], int]  # (step, its prompts) -> tokens of its rollouts

sys.path.insert(0, str(ROOT))


def main() -> None:
    keys = ["run=run", f"max_steps={STEPS}", f"checkpoint.every_steps={STEPS // 12}"]
    keys += ["budget.train_seconds=null", "checkpoint.every_seconds=null"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(ROOT / "train.py"), *keys], cwd=folder, check=True)
        measure = {"generation": generation, "evaluation": evaluation}[sys.argv[1]]
        ratios = measure(Path(folder) / "checkpoints" / "run")
    cores = f"{os.cpu_count()} cores ({len(os.sched_getaffinity(0))} used), {platform.machine()}"
    text = json.dumps({**ratios, "date": date.today().isoformat(), "machine": cores}, indent=1)
    (ROOT / "benchmarks" / "results" / f"{sys.argv[1]}.json").write_text(text + "\n")
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


def evaluation(run: Path) -> dict[str, Any]:
    """Seconds with adapters, seconds with merged models and their ratio, for every engine here."""
    start = time.perf_counter()
    merged, steps = merge(run)
    merging = time.perf_counter() - start
    pythons = {"transformers": sys.executable}
    if VLLM_PYTHON.is_file() or importlib.util.find_spec("vllm"):
        pythons["vllm"] = str(VLLM_PYTHON) if VLLM_PYTHON.is_file() else sys.executable
    engines: dict[str, dict[str, Any]] = {}
    for engine, python in pythons.items():
        evaluate(run, ["all"], python, engine, 1)  # not counted: compiles and fills caches
        for repeats in (1, 5):
            ours = evaluate(run, ["all"], python, engine, repeats)
            cell = {"one_engine_seconds": round(ours, 1)}
            for way, choices in (("reload", ["all"]), ("process", [f"[{step}]" for step in steps])):
                theirs = evaluate(merged, choices, python, engine, repeats) + merging
                cell[f"merge_and_{way}_seconds"] = round(theirs, 1)
                cell[f"merge_and_{way}_ratio"] = round(theirs / ours, 2)
            engines.setdefault(engine, {})[f"repeats={repeats}"] = cell
    return {"checkpoints": len(steps), "merge_seconds": round(merging, 1), "engines": engines}


def merge(adapters: Path) -> tuple[Path, list[int]]:
    """A run with merged checkpoints, and their steps."""
    from pods.config.command import load_config
    from pods.runs import checkpoints
    from scripts.export import write_merged

    config, run = load_config(adapters / ".hydra" / "config.yaml"), adapters.with_name("merged")
    shutil.copytree(adapters / ".hydra", run / ".hydra")
    saved = checkpoints.find(adapters)
    for checkpoint in saved:
        folder = run / checkpoint.path.name
        write_merged(config.model, checkpoint.path, folder)
        (folder / "meta.json").write_text(json.dumps({**checkpoint.meta, "files": {}}))
    return run, [checkpoint.step for checkpoint in saved]


def evaluate(run: Path, choices: list[str], python: str, engine: str, repeats: int) -> float:
    """Wall-clock seconds to score these checkpoints of a run, each choice in a process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled once, as on a user's machine
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as results:
        for checkpoints in choices:
            keys = [f"run={run.name}", f"checkpoints={checkpoints}", f"output_dir={run.parent}"]
            keys += [f"engine={engine}", f"repeats={repeats}", "pass_at=[1]"]
            command = [python, str(ROOT / "evaluate_run.py"), *keys, f"results_dir={results}"]
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
