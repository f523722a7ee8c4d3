"""Share of training that is neither generation nor the update: goal 2 % or less.

    uv run benchmarks/overhead.py

Trains the quickstart (n=64, m=16) for 40 steps without checkpoints and reads its metrics. The time
between two steps is that of the logs and the ledger. The first 5 steps are left out.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # benchmarks/rewards.py would hide the package rewards

from pods.clock import STEP_PHASES  # noqa: E402
from pods.runs import read_metrics  # noqa: E402

STEPS, WARM = 40, 5


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "train.py"), f"output_dir={folder}", "run=bench",
                   f"max_steps={STEPS}", "logger=[]", "budget.train_seconds=null",
                   "checkpoint.every_seconds=null"]  # fmt: skip
        subprocess.run(command, check=True)
        metrics = read_metrics(Path(folder) / "bench" / "metrics.jsonl")
    parts = {p: np.array([step[f"seconds/{p}"] for step in metrics[WARM:]]) for p in STEP_PHASES}
    between = [step["wall_seconds"] - step["train_seconds"] for step in metrics]
    parts["logs and ledger"] = np.diff(between)[WARM - 1 :]
    total = sum(parts.values())
    for name, seconds in parts.items():
        print(f"{name:<16}{1e3 * np.median(seconds):>9.2f} ms{np.median(seconds / total):>9.2%}")
    overhead = parts["score"] + parts["select"] + parts["logs and ledger"]
    print(f"outside generate and update: {np.median(overhead / total):.2%} of a step")


if __name__ == "__main__":
    main()
