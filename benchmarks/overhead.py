"""Share of a training step that is neither generation nor the update: goal 2 % or less.

    uv run benchmarks/overhead.py

Trains the quickstart (n=64, m=16) for some steps with a probe around the forward, backward and
optimiser calls. What the clock counts as `update` is split into those and the trainer's own
bookkeeping, so that the share printed hides nothing. Both sides are measured in the same run.
"""

import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path[0] = str(Path(__file__).resolve().parents[1])  # benchmarks/rewards.py hides the package

import train  # noqa: E402

STEPS = 40
WARM = 5  # first steps left out: allocation and caches


class Probe:
    """Adds up the seconds spent in functions that it is put around."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def around(self, owner: Any, name: str, label: str) -> None:
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds[label] += time.perf_counter() - start

        setattr(owner, name, timed)


def measure() -> tuple[np.ndarray, list[str]]:
    """Seconds of each measured step by part, (steps, parts)."""
    import accelerate
    import torch
    import trl

    from pods import ledger, loop

    probe, rows = Probe(), []
    probe.around(trl.GRPOTrainer, "_compute_loss", "forward")
    probe.around(accelerate.Accelerator, "backward", "backward")
    probe.around(torch.optim.AdamW, "step", "optimiser")
    probe.around(ledger.Ledger, "append", "ledger")
    probe.around(ledger.Ledger, "flush", "ledger")
    on_log = loop.Loop.on_log

    def collect(self: Any, *args: Any, logs: dict, **kwargs: Any) -> None:
        step = dict(self.clock.step)
        on_log(self, *args, logs=logs, **kwargs)
        parts = {**step, **probe.seconds}
        parts["rest of update"] = step["update"] - sum(
            probe.seconds[name] for name in ("forward", "backward", "optimiser")
        )
        rows.append(parts)
        probe.seconds.clear()

    loop.Loop.on_log = collect
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["train.py", f"output_dir={folder}", f"max_steps={STEPS}", "logger=[]",
                    "budget.train_seconds=null", "checkpoint.every_seconds=null"]  # fmt: skip
        train.main()
    names = ["generate", "score", "select", "forward", "backward", "optimiser", "rest of update",
             "ledger"]  # fmt: skip
    return np.array([[row.get(name, 0.0) for name in names] for row in rows[WARM:STEPS]]), names


def main() -> None:
    seconds, names = measure()
    median, total = np.median(seconds, axis=0), np.median(seconds.sum(axis=1))
    table = Table(title=f"Seconds of a quickstart step, n=64, m=16, P=2 ({len(seconds)} steps)")
    for column in ("part", "median ms", "share"):
        table.add_column(column, justify="right" if column != "part" else "left")
    for name, value in zip(names, median, strict=True):
        table.add_row(name, f"{value * 1e3:.2f}", f"{value / total:.2%}")
    overhead = sum(seconds[:, names.index(name)] for name in ("score", "select", "ledger"))
    print_share = np.median(overhead / seconds.sum(axis=1))
    rest = np.median(seconds[:, names.index("rest of update")] / seconds.sum(axis=1))
    Console().print(table)
    print(f"outside generate and update: {print_share:.2%} of a step (ledger included)")
    print(f"the trainer's own bookkeeping inside update: {rest:.2%}")


if __name__ == "__main__":
    main()
