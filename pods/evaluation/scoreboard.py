"""The console of an evaluation: a table per checkpoint as it is finished, then one per task.

Every number stands with its 95 % interval; the published script prints means alone.
"""

import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

Row = tuple[str, float | None, dict[str, Any]]  # policy, seconds of training, details
COLUMNS = ("answer %", "both %", "format %", "tokens", "cut %")


def console() -> Console:
    """Results go to stdout, also through a pipe, where rich would assume 80 columns."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def policy_table(title: str, rows: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    """One policy: a row per task and grader; rows: (task, details). Of k only the largest fits."""
    _, first = rows[0]
    names = next(iter(first["rewards"].values()))
    k = max((int(n.removeprefix("pass@")) for n in names if n.startswith("pass@")), default=1)
    several = [f"pass@{k}", f"majority@{k}"] if k > 1 else []
    columns = [*COLUMNS, *(name.replace("majority", "maj") for name in several)]
    table = _table(title, ["task", "graded by"], columns)
    for task, details in rows:
        for version, grades in details["rewards"].items():
            cells = [_percent(grades[name]) for name in several]
            table.add_row(task, version, *_cells(details, version), *cells)
    table.caption = f"±: half of the 95 % interval; {first['repeats']} completions per question"
    return table


def task_table(task: str, rows: Sequence[Row], note: str, chosen: Row | None = None) -> Table:
    """One task: a row per policy, under the first grader; `chosen` is the one row of the test split
    where the others are of the validation split."""
    version = next(iter(rows[0][2]["rewards"]))
    left = ["policy", "split"] if chosen else ["policy"]
    table = _table(f"{task}, graded by {version}", left, ["trained", *COLUMNS])
    for policy, seconds, details in rows:
        split = ["validation"] if chosen else []
        style = "bold" if chosen and policy == chosen[0] else None
        table.add_row(policy, *split, _duration(seconds), *_cells(details, version), style=style)
    if chosen:
        policy, seconds, details = chosen
        table.add_section()
        cells = [_duration(seconds), *_cells(details, version)]
        table.add_row(policy, "test", *cells, style="bold")
    table.caption = note
    return table


def _table(title: str, left: list[str], right: list[str]) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _cells(details: dict[str, Any], version: str) -> list[str]:
    """The cells of COLUMNS."""
    grades = details["rewards"][version]
    percent = [_percent(value) for value in (grades["answer"], grades["both"], details["format"])]
    return [*percent, _spread(details["tokens"], 1), _percent(details["truncated"])]


def _percent(value: dict[str, float]) -> str:
    return _spread(value, 100)


def _spread(value: dict[str, float], scale: float) -> str:
    half = scale * (value["high"] - value["low"]) / 2
    return f"{scale * value['mean']:.1f}\n[dim]±{half:.1f}[/dim]"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
