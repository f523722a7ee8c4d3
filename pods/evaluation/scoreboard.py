"""The table with which an evaluation ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from pods.evaluation.targets import Target
from pods.runs.results import GREEDY

WIDTH = 100  # characters of the table; a wider one goes on below
FILES = 6  # paths named at the end
NAMES = ("run", "task", "graded by", "questions")  # in the title if all lines agree
Line = dict[str, str]  # head -> text


@dataclass(frozen=True)
class Scoreboard:
    """The summary that a command shows at its end."""

    lines: list[Line]
    notes: list[str]
    files: list[Path]
    skipped: list[str]  # checkpoints that could not be scored, with reasons


def lines(target: Target, by_task: dict[str, Any]) -> list[Line]:
    """A line for each task and grader of a policy, greedy scores beside the sampled ones if both
    exist; by_task: details. Of pass@k only the largest k fits."""
    run, policy = target.store.folder.name, target.name
    if target.weights is None:  # the store is named after the base model
        run, policy = "", run
    seconds = target.meta.get("train_seconds")
    table: list[Line] = []
    for task, details in by_task.items():
        if task.removesuffix(GREEDY) != task and task.removesuffix(GREEDY) in by_task:
            continue  # a column of the sampled scores
        greedy = by_task.get(task + GREEDY)
        for grader, metrics in details["rewards"].items():
            line = {
                "run": run,
                "task": task,
                "graded by": grader,
                "questions": f"{details['questions']} x {details['repeats']}",
                "policy": policy,
                "after": "" if seconds is None else f"{seconds:,.0f} s",
                "correct %": spread(metrics["correct"]),
            }
            if greedy:
                line["greedy %"] = spread(greedy["rewards"][grader]["correct"])
            line["both %"] = spread(metrics["both"])
            line["format %"] = spread(details["format"])
            line["tokens"] = spread(details["tokens"], 1)
            line["clipped %"] = spread(details["clipped"])
            for name, value in details.get("functions", {}).items():
                line[name] = spread(value, 1, digits=3)
            if "alike" in metrics:
                line["alike"] = f"{metrics['alike']['mean']:.1%}"
            by_k = [name for name in metrics if name.startswith("pass@") and name != "pass@1"]
            if by_k:
                line[by_k[-1]] = spread(metrics[by_k[-1]])
            table.append(line)
    return table


def show(boards: Sequence[Scoreboard]) -> None:
    """One table of every score, and the paths written; on stdout."""
    rows = [line for board in boards for line in board.lines]
    if rows:
        table = pandas.DataFrame(rows).fillna("").drop_duplicates()  # runs share a base model
        shared = [name for name in NAMES if len(set(table[name]) - {""}) <= 1]
        titles = [f"{name} {max(table[name])}" for name in shared if max(table[name])]
        print(", ".join(titles))
        table = table.drop(columns=shared)
        heads = list(table)
        keys = heads[: heads.index("after")]  # named again where the table goes on below
        table = table.set_index(keys).rename_axis(columns=None)
        print(table.to_string(line_width=WIDTH, sparsify=False))
        notes = ["[ ]: 95 % interval", *(note for board in boards for note in board.notes)]
        print(*dict.fromkeys(notes), sep="\n")
    files = list(dict.fromkeys(path for board in boards for path in board.files))
    if files:
        names = ", ".join(path.name for path in files[:FILES])
        if len(files) > FILES:
            names += f" and {len(files) - FILES} more"
        print(f"wrote {names} in {files[0].parent}")


def spread(value: dict[str, float], scale: float = 100, digits: int = 1) -> str:
    """The mean and its interval, from lower to upper."""
    mean, low, high = (f"{scale * value[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"
