"""The console of an evaluation: a line per policy as it is finished, then one table of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pods.runs.results import GREEDY

WIDTH = 100  # characters of the table; a wider one goes on below
NAMES = ("run", "task", "graded by", "questions")  # in the title if all rows agree


@dataclass(frozen=True)
class Row:
    """The scores of one policy on one task."""

    run: str  # "" of a base model
    policy: str
    seconds: float | None  # of training
    task: str
    details: dict[str, Any]
    greedy: dict[str, Any] | None  # details of its greedy completions


@dataclass(frozen=True)
class Board:
    """The summary that a command shows at its end."""

    rows: list[Row]
    notes: list[str]
    files: list[Path]
    skipped: list[str]  # checkpoints that could not be scored, with reasons


def rows(run: str, policy: str, seconds: float | None, by_task: dict[str, Any]) -> list[Row]:
    """A row for each task with details; greedy ones stand beside the sampled ones if both exist."""
    beside = {task + GREEDY for task in by_task}
    own = [task for task in by_task if task not in beside]
    return [Row(run, policy, seconds, t, by_task[t], by_task.get(t + GREEDY)) for t in own]


def line(rows: Sequence[Row]) -> str:
    """A finished policy in one line: its accuracy on every task under the first grader."""
    first = [cells(row, next(iter(row.details["rewards"]))) for row in rows]
    parts = [f"{row['task']} {row['correct %']} %" for row in first]
    parts += [f"{row['task']} greedy {row['greedy %']} %" for row in first if "greedy %" in row]
    after = f" after {first[0]['after']} of training" if first[0]["after"] else ""
    return f"{rows[0].policy}{after}: {', '.join(parts)}"


def show(boards: Sequence[Board]) -> None:
    """One table of every score, a row for each run, task, policy and grader, and the paths written;
    on stdout."""
    rows = [row for board in boards for row in board.rows]
    lines = [cells(row, grader) for row in rows for grader in row.details["rewards"]]
    if lines:
        table = pd.DataFrame(lines).fillna("").drop_duplicates()  # runs share a base model
        shared = [name for name in NAMES if len({*table[name]} - {""}) <= 1]
        print(", ".join(f"{name} {max(table[name])}" for name in shared if max(table[name])))
        table = table.drop(columns=shared)
        keys = [*table][: [*table].index("after")]  # named again where the table goes on below
        table = table.set_index(keys).rename_axis(columns=None)
        print(table.to_string(line_width=WIDTH, sparsify=False), "[ ]: 95 % interval", sep="\n")
        print(*dict.fromkeys(note for board in boards for note in board.notes), sep="\n")
    if files := [*dict.fromkeys(path for board in boards for path in board.files)]:
        more = f" and {len(files) - 6} more" * (len(files) > 6)
        print(f"wrote {', '.join(path.name for path in files[:6])}{more} in {files[0].parent}")


def cells(row: Row, grader: str) -> dict[str, str]:
    """Head -> text; of pass@k only the largest k fits into a line."""
    details, metrics = row.details, row.details["rewards"][grader]
    asked = f"{details['questions']} x {details['repeats']}"
    largest = max((int(name[5:]) for name in metrics if name.startswith("pass@")), default=1)
    return {
        **dict(zip(NAMES, (row.run, row.task, grader, asked), strict=True)),
        "policy": row.policy,
        "after": duration(row.seconds),
        "correct %": spread(metrics["correct"]),
        **({"greedy %": spread(row.greedy["rewards"][grader]["correct"])} if row.greedy else {}),
        "both %": spread(metrics["both"]),
        "format %": spread(details["format"]),
        "tokens": spread(details["tokens"], 1),
        "clipped %": spread(details["clipped"]),
        **{name: spread(x, 1, digits=3) for name, x in details.get("functions", {}).items()},
        **({"alike": f"{metrics['alike']['mean']:.1%}"} if "alike" in metrics else {}),
        **({f"pass@{largest}": spread(metrics[f"pass@{largest}"])} if largest > 1 else {}),
    }


def spread(value: dict[str, float], scale: float = 100, digits: int = 1) -> str:
    """The mean and its interval, from lower to upper."""
    mean, low, high = (f"{scale * value[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def duration(seconds: float | None) -> str:
    if seconds is None or seconds < 600:
        return "" if seconds is None else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
