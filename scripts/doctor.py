"""Check a training before it costs hours: versions, card, data, model, rewards, disk, a trial run.

    uv run scripts/doctor.py experiment=gsm8k_qwen algorithm=grpo     # any command line of train.py
    uv run accelerate launch --config_file config/accelerate/zero2.yaml scripts/doctor.py \\
        experiment=gsm8k_h100                                         # also under a launcher

The trial runs a few steps of the real training and reports seconds and peak memory by phase.
Exit code 0: the training would run; 1: a check failed (its row says what to do); 2: wrong config.
"""

import os
import signal
import sys

from hydra.core.hydra_config import HydraConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pods import ranks
from pods.config.check import check, settle
from pods.config.command import command
from pods.config.keys import TrainConfig

COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@command("train", TrainConfig)
def main(config: TrainConfig) -> None:
    settle(config)
    check(config)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from pods import doctor  # here, so that a mistyped key fails before torch is imported

    signal.signal(signal.SIGTERM, doctor.stop)
    report = doctor.examine(config, list(HydraConfig.get().overrides.task))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the report comes next
    if ranks.is_main():
        show(f"{config.experiment} ({config.run})", report.first_prompt, report.rows)
    else:  # rank 0 may not have met these failures
        for name, verdict, seen in report.rows:
            if verdict == doctor.FAIL and seen != doctor.STOPPED:
                print(f"process {ranks.rank()}: {name}: {seen}", file=sys.stderr)
    sys.exit(report.failed)


def show(title: str, first_prompt: str | None, rows: list[tuple[str, str, str]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    if first_prompt is not None:
        console.print("first prompt:", style="bold")
        console.print(first_prompt, markup=False, highlight=False)
    table = Table("check", "", "seen", title=title)
    for name, verdict, seen in rows:
        table.add_row(name, f"[{COLOURS[verdict]}]{verdict}[/]", escape(seen))
    console.print(table)


if __name__ == "__main__":
    main()
