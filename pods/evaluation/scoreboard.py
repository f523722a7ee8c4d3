"""The console of an evaluation: a line per policy as it is finished, then one table of all.

Every number stands with its 95 % interval; the published script prints means alone.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

COLUMNS = ("answer %", "both %", "format %", "tokens", "cut %")


class Row(NamedTuple):
    """The scores of one policy on one task."""

    run: str  # "" of a base model
    policy: str
    seconds: float | None  # of training
    task: str
    details: dict[str, Any]
    chosen: bool = False


def line(policy: str, seconds: float | None, scores: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """A finished policy in one line: its accuracy on every task under the first grader."""
    parts = []
    for task, details in scores:
        answer = next(iter(details["rewards"].values()))["answer"]
        half = (answer["high"] - answer["low"]) / 2
        parts.append(f"{task} {100 * answer['mean']:.1f} ±{100 * half:.1f} %")
    after = f" after {duration(seconds)} of training" if seconds is not None else ""
    return f"{policy}{after}: {', '.join(parts)}"


def show(rows: Sequence[Row], notes: Sequence[str], files: Iterable[Path]) -> None:
    """The table and every path written, on stdout; a pipe gets lines that are never folded."""
    if rows:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
        once = [row for i, row in enumerate(rows) if row not in rows[:i]]  # runs share a base model
        console.print(table(once, notes))
    for path in _distinct(map(str, files)):
        print(f"wrote {path}")


def table(rows: Sequence[Row], notes: Sequence[str]) -> Table:
    """Every score of a command: a row per run, policy, task and grader. Of k only the largest fits.

    A column of one value is part of the title; rows with unlike questions or repeats have a star.
    """
    values = {
        "run": _distinct(row.run for row in rows if row.run),
        "task": _distinct(row.task for row in rows),
        "policy": [],
        "graded by": _distinct(grader for row in rows for grader in row.details["rewards"]),
    }
    single = {name: found[0] for name, found in values.items() if len(found) == 1}
    left = [name for name in values if name not in single and (values[name] or name == "policy")]
    several, usual, unlike = _several(rows[0]), _usual(rows), []
    heads = [*COLUMNS, *(name.replace("majority", "maj") for name in several)]
    found = _table(", ".join(f"{name} {value}" for name, value in single.items()), left, heads)
    for row in rows:
        if different := _asked(row) != usual[row.task]:
            unlike.append(f"* {row.policy} on {row.task}: {_asked(row)}")
        policy = f"{row.policy}{'*' * different}\n[dim]{duration(row.seconds)}[/dim]"
        for version, grades in row.details["rewards"].items():
            task = row.task.replace(".", "\n.")  # <task>.validation, .sample<number>
            names = {"run": row.run, "task": task, "policy": policy, "graded by": version}
            more = [_spread(grades[key]) if key in grades else "" for key in several]
            cells = [*(names[key] for key in left), *_cells(row.details, version), *more]
            found.add_row(*cells, style="bold" if row.chosen else None)
    asked = "; ".join(f"{task}: {usual[task]}" for task in values["task"])
    found.caption = "\n".join(["±: half of the 95 % interval", asked, *unlike, *_distinct(notes)])
    return found


def _several(row: Row) -> list[str]:
    """pass@k and majority@k of the largest k."""
    names = next(iter(row.details["rewards"].values()))
    k = max((int(n.removeprefix("pass@")) for n in names if n.startswith("pass@")), default=1)
    return [f"pass@{k}", f"majority@{k}"] if k > 1 else []


def _asked(row: Row) -> str:
    return f"{row.details['questions']} questions x {row.details['repeats']} completions"


def _usual(rows: Sequence[Row]) -> dict[str, str]:
    """Task -> what most of its rows were made with."""
    return {
        task: Counter(_asked(row) for row in rows if row.task == task).most_common(1)[0][0]
        for task in {row.task for row in rows}
    }


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _table(title: str, left: list[str], right: list[str]) -> Table:
    tight = {"padding": (0, 1, 0, 0), "pad_edge": False}  # for 80 columns
    table = Table(
        title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, **tight
    )
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _cells(details: dict[str, Any], version: str) -> list[str]:
    """The cells of COLUMNS."""
    grades = details["rewards"][version]
    percent = [_spread(value) for value in (grades["answer"], grades["both"], details["format"])]
    return [*percent, _spread(details["tokens"], 1), _spread(details["truncated"])]


def _spread(value: dict[str, float], scale: float = 100) -> str:
    half = scale * (value["high"] - value["low"]) / 2
    return f"{scale * value['mean']:.1f}\n[dim]±{half:.1f}[/dim]"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
