"""Check a training before it costs hours: versions, card, data, model, rewards, memory, steps.

    uv run scripts/doctor.py experiment=gsm8k_qwen algorithm=grpo     # any command line of train.py
    uv run accelerate launch --config_file config/accelerate/zero2.yaml scripts/doctor.py \\
        experiment=gsm8k_h100                                         # also that of a launcher

Exit code 0: it would run; 1: something would fail (each row says what to do); 2: a wrong config.
Without a GPU the estimate is made for common cards, and steps are tried only where they can run.
"""

import os
import signal
import sys
from collections.abc import Iterable

from hydra.core.hydra_config import HydraConfig
from rich.console import Console
from rich.table import Table

from pods import distributed
from pods.check import check
from pods.cli import command
from pods.config import TrainConfig

COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@command("train", TrainConfig)
def main(config: TrainConfig) -> None:
    check(config)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from pods import doctor  # imports torch: not for a mistyped key

    signal.signal(signal.SIGTERM, doctor.stop)
    report = doctor.examine(config, list(HydraConfig.get().overrides.task))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the report is on its way out
    if distributed.is_main():
        show(config, report.rows, report.texts, doctor.memory_rows(report))
    else:  # what the first process may not have met
        for name, verdict, seen in report.rows:
            if verdict == doctor.FAIL and seen != doctor.STOPPED:
                print(f"process {distributed.rank()}: {name}: {seen}", file=sys.stderr)
    if report.failed:
        sys.exit(1)


def show(
    config: TrainConfig,
    rows: list[tuple[str, str, str]],
    texts: dict[str, str],
    terms: Iterable[tuple[str, ...]],
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, soft_wrap=False)
    estimate = Table("estimate", "GiB", "phase", "lower it with", title="Memory")
    for row in terms:
        estimate.add_row(*row)
    console.print(estimate)
    for name, text in texts.items():
        console.print(f"{name}:", style="bold")
        console.print(text, markup=False, highlight=False)
    table = Table("check", "", "seen", title=f"{config.experiment} ({config.run})")
    for name, verdict, seen in rows:
        table.add_row(name, f"[{COLOURS[verdict]}]{verdict}[/]", seen.replace("[", r"\["))
    console.print(table)


if __name__ == "__main__":
    main()
