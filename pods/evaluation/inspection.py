"""The tables of scripts/inspect_run.py: prompts without signal, wrong answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas

from pods import files
from pods.ranks import printable
from pods.runs.results import run_order
from rewards.tags import published_answer

WIDTH = 60  # characters of a text in a table
COLUMNS = ("checkpoint", "task", "wrong", "question", "gold", "text")
Rollouts = list[dict[str, Any]]  # the records of a rollout log


def completions(folder: Path) -> pandas.DataFrame:
    """Every stored completion of a run, in the order of its checkpoints, tasks and repeats."""
    rows = []
    for path in sorted(folder.glob("*/*/repeat-*.jsonl"), key=lambda path: run_order(str(path))):
        checkpoint, task, _ = path.relative_to(folder).parts
        for record in files.read_lines(path):
            first = next(iter(record["correct"].values()), None)  # of its graders
            rows.append(
                {
                    "checkpoint": checkpoint,
                    "task": task,
                    "wrong": first is False,  # None: no verdict
                    "question": record["id"],
                    "gold": record["answer"],
                    "text": record["completion"],
                }
            )
    return pandas.DataFrame(rows, columns=COLUMNS)


def visits_of(rollouts: Rollouts) -> pandas.DataFrame:
    """A row for each prompt of a step; correct: share of its rollouts, NaN if nothing graded."""
    rows = []
    for record in rollouts:
        total = record["total"]
        correct = record.get("correct")  # None if nothing grades
        rows.append(
            {
                "question": record["question_id"],
                "gold": record["answer"],
                "reward": np.mean(total),
                "correct": np.mean(correct) if correct else np.nan,
                "signal": min(total) < max(total),
            }
        )
    return pandas.DataFrame(rows)


def show_signal(run: str, visits: pandas.DataFrame, most: int) -> None:
    """The prompts whose rewards were always equal, and those that were always solved."""
    by_question = visits.groupby("question", sort=False).agg(
        visits=("signal", "size"),
        signal=("signal", "sum"),
        reward=("reward", "mean"),
        correct=("correct", "mean"),
        gold=("gold", "first"),
    )
    solved = by_question.query("correct == 1")
    never = by_question.query("correct != 1 and signal == 0")
    print(
        f"{run}: {len(by_question)} questions in {len(visits)} visits; "
        f"{len(solved)} were always solved, {len(never)} others never had signal"
    )
    for title, table in (("always solved", solved), ("never had signal", never)):
        rows = table.sort_values("visits", ascending=False, kind="stable")
        show(f"{title}, most visits first", rows.reset_index(), most)


def show_wrong(answers: pandas.DataFrame, most: int) -> None:
    """The most frequent wrong answers of the last checkpoint, by task."""
    last = answers["checkpoint"].iloc[-1]
    for task, own in answers.query("checkpoint == @last").groupby("task", sort=False):
        wrong = own[own["wrong"]]
        rows = wrong.assign(answered=wrong["text"].map(published_answer).map(one_line))
        times = rows.groupby(["question", "answered", "gold"], sort=False).size()
        table = times.sort_values(ascending=False, kind="stable").reset_index(name="times")
        show(f"wrong answers of {last} on {task}", table, most)


def show(title: str, table: pandas.DataFrame, most: int) -> None:
    """The first rows of a table under its title, without control characters."""
    print(f"\n{printable(title)}: {len(table)}")
    if len(table):
        rows = table[:most].map(lambda cell: one_line(cell) if isinstance(cell, str) else cell)
        print(rows.to_string(index=False, float_format="{:.3f}".format, max_colwidth=WIDTH))


def one_line(text: str) -> str:
    return " ".join(printable(text).split())
