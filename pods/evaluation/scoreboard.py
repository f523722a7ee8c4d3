"""The table that an evaluation prints at its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from pods.evaluation.targets import Store, Target
from pods.files import few
from pods.runs.results import GREEDY

NAMES = ("run", "task", "graded by", "questions")  # in the title if all lines agree
Line = dict[str, str]  # head -> text


@dataclass(frozen=True)
class Scoreboard:
    """The summary that a command shows at its end."""

    lines: list[Line]
    notes: list[str]
    files: list[Path]
    skipped: list[str]  # checkpoints that could not be scored, with reasons


def lines(store: Store, target: Target, by_task: dict[str, Any]) -> list[Line]:
    """A line for each task and grader, greedy scores beside the sampled ones if both exist;
    by_task: details. Of pass@k only the largest k fits."""
    run, policy = ("", store.name) if store.base else (store.name, target.name)
    seconds = target.meta.get("train_seconds")
    table: list[Line] = []
    for task, details in by_task.items():
        if task.endswith(GREEDY) and task.removesuffix(GREEDY) in by_task:
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
            shares = details | metrics  # format and clipped are of every grader
            by_k = [name for name in metrics if name.startswith("pass@") and name != "pass@1"]
            for name in ("both", "format", "clipped", "unanimous", *by_k[-1:]):
                if name in shares:
                    line[f"{name} %"] = f"{100 * shares[name]['mean']:.1f}"
            line["tokens"] = f"{details['tokens']['mean']:.1f}"
            for name, value in details.get("functions", {}).items():
                line[name] = f"{value['mean']:.3f}"
            table.append(line)
    return table


def show(boards: Sequence[Scoreboard]) -> None:
    """One table of every score, and the paths written; on stdout."""
    rows = [line for board in boards for line in board.lines]
    if rows:
        table = pandas.DataFrame(rows).fillna("").drop_duplicates()  # runs share a base model
        values = {name: {*table[name]} - {""} for name in NAMES}
        shared = [name for name, own in values.items() if len(own) <= 1]
        print(", ".join(f"{name} {value}" for name in shared for value in values[name]))
        table = table.sort_values("task", kind="stable")  # the policies of a task together
        print(table.drop(columns=shared).to_string(index=False))
        notes = [note for board in boards for note in board.notes]
        kind = (
            "[ ]: 95 % interval over the questions of one run (bootstrap; near 0 and 100 %: Wilson)"
        )
        print(*dict.fromkeys([kind, *notes]), sep="\n")
    files = dict.fromkeys(str(path) for board in boards for path in board.files)
    if files:
        print(f"wrote {few(files)}")


def spread(share: dict[str, float]) -> str:
    """The mean and its interval in percent, from lower to upper."""
    mean, low, high = (f"{100 * share[key]:.1f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"
