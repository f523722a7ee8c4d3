"""The console of an evaluation: a line per policy as it is finished, then one table of all.

Every number stands with its 95 % interval; the published script prints means alone.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

NAMES = ("run", "task", "graded by", "questions")  # in the title where all rows agree


@dataclass(frozen=True)
class Row:
    """The scores of one policy on one task."""

    run: str  # "" of a base model
    policy: str
    seconds: float | None  # of training
    task: str
    details: dict[str, Any]
    chosen: bool = False


@dataclass(frozen=True)
class Board:
    """What a command shows at its end."""

    rows: list[Row]
    notes: list[str]
    files: list[Path]
    skipped: list[str]  # what could not be scored, with the reason


def line(policy: str, rows: Sequence[Row]) -> str:
    """A finished policy in one line: its accuracy on every task under the first grader."""
    parts = []
    for row in rows:
        mean, half = _spread(next(iter(row.details["rewards"].values()))["answer"])
        parts.append(f"{row.task} {mean} ±{half} %")
    after = f" after {duration(rows[0].seconds)} of training" if rows[0].seconds is not None else ""
    return f"{policy}{after}: {', '.join(parts)}"


def show(boards: Sequence[Board]) -> None:
    """The table and every path written, on stdout; a pipe gets lines that are never folded."""
    rows = [row for board in boards for row in board.rows]
    distinct = [row for i, row in enumerate(rows) if row not in rows[:i]]  # runs share a base model
    if distinct:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
        notes = dict.fromkeys(note for board in boards for note in board.notes)
        console.print(table(distinct, list(notes)))
    for path in dict.fromkeys(path for board in boards for path in board.files):
        print(f"wrote {path}")


def table(rows: Sequence[Row], notes: Sequence[str]) -> Table:
    """Every score of a command: a row per run, task, policy and grader."""
    lines = [(row, _cells(row, grader)) for row in rows for grader in row.details["rewards"]]
    shared = {}
    for name in NAMES:
        values = {cells[name] for _, cells in lines} - {""}
        if len(values) <= 1:
            shared[name] = "".join(values).replace("\n", "")
    grid = Table(
        title=", ".join(f"{name} {value}" for name, value in shared.items() if value),
        caption="\n".join(["±: half of the 95 % interval", *notes]), title_justify="left",
        caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    heads = list(dict.fromkeys(h for _, cells in lines for h in cells if h not in shared))
    for head in heads:
        is_text = head in (*NAMES, "policy")
        grid.add_column(head, justify="left" if is_text else "right", no_wrap=is_text)
    for row, cells in lines:
        grid.add_row(*(cells.get(h, "") for h in heads), style="bold" if row.chosen else None)
    return grid


def _cells(row: Row, grader: str) -> dict[str, str]:
    """Head -> text, of two lines for 80 columns; of pass@k only the largest fits."""
    details, grades = row.details, row.details["rewards"][grader]
    task = row.task.replace(".", "\n.")  # <task>.validation, .sample<number>
    asked = f"{details['questions']} x {details['repeats']}"
    cells = dict(zip(NAMES, (row.run, task, grader, asked), strict=True))
    cells["policy"] = f"{row.policy}\n[dim]{duration(row.seconds)}[/dim]"
    values = {"answer %": grades["answer"], "both %": grades["both"], "format %": details["format"]}
    values |= {"tokens": details["tokens"], "cut %": details["truncated"]}
    ks = [int(name.removeprefix("pass@")) for name in grades if name.startswith("pass@")]
    values |= {f"pass@{k}": grades[f"pass@{k}"] for k in ks if k == max(ks) > 1}
    for head, value in values.items():
        mean, half = _spread(value, 1 if head == "tokens" else 100)
        cells[head] = f"{mean}\n[dim]±{half}[/dim]"
    return cells


def _spread(value: dict[str, float], scale: float = 100) -> tuple[str, str]:
    """The mean, and half of the interval."""
    return f"{scale * value['mean']:.1f}", f"{scale * (value['high'] - value['low']) / 2:.1f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
