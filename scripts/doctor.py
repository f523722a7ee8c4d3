"""Check a training before it costs hours: versions, card, data, model, rewards, memory, steps.

    uv run scripts/doctor.py experiment=gsm8k_qwen algorithm=grpo     # any command line of train.py

Exit code 0: it would run; 1: something would fail (each row says what to do); 2: a wrong config.
Without a GPU the estimate is made for common cards, and steps are tried only where they can run.
"""

import os
import sys

from hydra.core.hydra_config import HydraConfig
from rich.console import Console
from rich.table import Table

from pods.check import check
from pods.cli import command
from pods.config import TrainConfig

COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@command("train", TrainConfig)
def main(config: TrainConfig) -> None:
    check(config)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from pods.doctor import examine, memory_rows  # imports torch: not for a mistyped key

    report = examine(config, list(HydraConfig.get().overrides.task))
    console = Console(width=None if sys.stdout.isatty() else 120, soft_wrap=False)
    estimate = Table("estimate", "GiB", "phase", "lower it with", title="Memory")
    for row in memory_rows(report):
        estimate.add_row(*row)
    console.print(estimate)
    for name, text in report.texts.items():
        console.print(f"{name}:", style="bold")
        console.print(text, markup=False, highlight=False)
    table = Table("check", "", "seen", title=f"{config.experiment} ({config.run})")
    for name, verdict, seen in report.rows:
        table.add_row(name, f"[{COLOURS[verdict]}]{verdict}[/]", seen.replace("[", r"\["))
    console.print(table)
    if report.failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
