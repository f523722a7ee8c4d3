"""The table with which an evaluation ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pods.runs.results import GREEDY

WIDTH = 100  # characters of the table; a wider one goes on below
NAMES = ("run", "task", "graded by", "questions")  # in the title if all lines agree
Line = dict[str, str]  # head -> text


@dataclass(frozen=True)
class Board:
    """The summary that a command shows at its end."""

    lines: list[Line]
    notes: list[str]
    files: list[Path]
    skipped: list[str]  # checkpoints that could not be scored, with reasons


def lines(run: str, policy: str, seconds: float | None, by_task: dict[str, Any]) -> list[Line]:
    """A line for each task and grader, greedy scores beside the sampled ones if both exist; run: ""
    of a base model; seconds: of training; by_task: details. Of pass@k only the largest k fits."""
    table, beside = [], {task + GREEDY for task in by_task}
    for task, details in by_task.items():
        for grader, metrics in details["rewards"].items() if task not in beside else ():
            asked = f"{details['questions']} x {details['repeats']}"
            line = dict(zip(NAMES, (run, task, grader, asked), strict=True))
            line |= {"policy": policy, "after": "" if seconds is None else f"{seconds:,.0f} s"}
            line["correct %"] = spread(metrics["correct"])
            if greedy := by_task.get(task + GREEDY):
                line["greedy %"] = spread(greedy["rewards"][grader]["correct"])
            line |= {"both %": spread(metrics["both"]), "format %": spread(details["format"])}
            line |= {"tokens": spread(details["tokens"], 1)}
            line |= {"clipped %": spread(details["clipped"])}
            own = details.get("functions", {})
            line |= {name: spread(value, 1, digits=3) for name, value in own.items()}
            if "alike" in metrics:
                line["alike"] = f"{metrics['alike']['mean']:.1%}"
            by_k = [name for name in metrics if name.startswith("pass@") and name != "pass@1"]
            line |= {name: spread(metrics[name]) for name in by_k[-1:]}
            table.append(line)
    return table


def show(boards: Sequence[Board]) -> None:
    """One table of every score, and the paths written; on stdout."""
    if rows := [line for board in boards for line in board.lines]:
        table = pd.DataFrame(rows).fillna("").drop_duplicates()  # runs share a base model
        shared = [name for name in NAMES if len({*table[name]} - {""}) <= 1]
        print(", ".join(f"{name} {max(table[name])}" for name in shared if max(table[name])))
        table = table.drop(columns=shared)
        keys = [*table][: [*table].index("after")]  # named again where the table goes on below
        table = table.set_index(keys).rename_axis(columns=None)
        notes = ["[ ]: 95 % interval", *(note for board in boards for note in board.notes)]
        print(table.to_string(line_width=WIDTH, sparsify=False), *dict.fromkeys(notes), sep="\n")
    if files := [*dict.fromkeys(path for board in boards for path in board.files)]:
        more = f" and {len(files) - 6} more" * (len(files) > 6)
        print(f"wrote {', '.join(path.name for path in files[:6])}{more} in {files[0].parent}")


def spread(value: dict[str, float], scale: float = 100, digits: int = 1) -> str:
    """The mean and its interval, from lower to upper."""
    mean, low, high = (f"{scale * value[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"
