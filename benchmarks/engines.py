"""Seconds that our decode loop saves over TRL's generate: a ratio, measured in turns in one run.

    OMP_NUM_THREADS=1 taskset -c 0 uv run benchmarks/engines.py
Trains the quickstart for 24 steps of 2 x 64 rollouts with each engine, at a learning rate that
changes nothing, and writes results/generation.json. Nothing else should run beside it.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
TURNS, ENGINES = 3, {"ours": "transformers", "TRL": "trl"}
KEYS = (
    "rollouts_per_prompt=64", "prompts_per_step=2", "optimizer.learning_rate=1e-12", "max_steps=24",
    "budget.train_seconds=null", "checkpoint.every_seconds=null", "logger=[]", "backend.threads=1",
)  # fmt: skip


def main() -> None:
    seconds: dict[str, list[float]] = {side: [] for side in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for side, engine in ENGINES.items():
                run = f"{side}-{turn}"
                command = [sys.executable, ROOT / "train.py", *KEYS, f"engine={engine}"]
                subprocess.run([*command, f"run={run}", f"seed={turn}"], cwd=folder, check=True)
                lines = Path(folder, "checkpoints", run, "metrics.jsonl").read_text().splitlines()
                # The first step fills caches.
                seconds[side] += [json.loads(line)["seconds/generate"] for line in lines[1:]]
    medians = {side: median(values) for side, values in seconds.items()}
    cores = f"{os.cpu_count()} cores ({len(os.sched_getaffinity(0))} used), {platform.machine()}"
    facts = {"steps": len(seconds["ours"]), "date": date.today().isoformat(), "machine": cores}
    text = json.dumps({"ratio": medians["ours"] / medians["TRL"], "seconds": medians} | facts)
    (ROOT / "benchmarks" / "results" / "generation.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
