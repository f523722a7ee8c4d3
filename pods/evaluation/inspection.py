"""What a run's prompts and completions say, in its rollout log and the records of evaluations.

uv run scripts/inspect_run.py run=<run>              prompts without signal, wrong answers
uv run scripts/inspect_run.py run=<run> question=7   one question through all checkpoints
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
from pydantic import PositiveInt

from pods import files
from pods.config.command import command
from pods.config.errors import UserError
from pods.config.keys import Location, Section, Text, typed_as
from pods.evaluation import lookup
from pods.ranks import printable
from pods.runs.results import run_order
from rewards.tags import published_answer

WIDTH = 60  # characters of a text in a table
VERDICTS = {True: "correct", False: "wrong", None: "no verdict"}
COLUMNS = ("place", "checkpoint", "task", "verdict", "question", "gold", "text")
Rollouts = list[dict[str, Any]]  # the records of a rollout log


class InspectConfig(Section):
    run: Text
    question: Text | None
    most: PositiveInt
    output_dir: Location
    results_dir: Location


@command("inspect", InspectConfig)
def main(config: InspectConfig) -> None:
    config.run = lookup.find_run(config.run, config.output_dir)
    log = config.output_dir / config.run / "rollouts.jsonl.gz"
    if not log.is_file():
        raise UserError(f"run={config.run}: no rollout log {log}; copy it there, or name another")
    rollouts = files.read_lines(log)
    answers = completions(config.results_dir / config.run)
    if config.question is not None:
        show_question(config, rollouts, answers)
    else:
        if rollouts:
            show_signal(config, visits_of(rollouts))
        show_wrong(config, answers)


def completions(folder: Path) -> pandas.DataFrame:
    """Every stored completion of a run, in the order of its checkpoints, tasks and repeats."""
    rows = []
    for path in sorted(folder.glob("*/*/repeat-*.jsonl"), key=lambda path: run_order(str(path))):
        checkpoint, task, _ = path.relative_to(folder).parts
        for record in files.read_lines(path):
            first = next(iter(record["correct"].values()), None)  # of its graders
            rows.append(
                {
                    "place": f"{checkpoint} {task} {path.stem}",
                    "checkpoint": checkpoint,
                    "task": task,
                    "verdict": VERDICTS[first],
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
                "step": record["step"],
                "question": record["question_id"],
                "gold": record["answer"],
                "reward": np.mean(total),
                "correct": np.mean(correct) if correct else np.nan,
                "signal": min(total) < max(total),
                "kept": len(record["kept"]),
                "of": len(total),
            }
        )
    return pandas.DataFrame(rows)


def show_signal(config: InspectConfig, visits: pandas.DataFrame) -> None:
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
        f"{config.run}: {len(by_question)} questions in {len(visits)} visits; "
        f"{len(solved)} were always solved, {len(never)} others never had signal"
    )
    for title, table in (("always solved", solved), ("never had signal", never)):
        rows = table.sort_values("visits", ascending=False, kind="stable")
        show(f"{title}, most visits first", rows.reset_index(), config.most)


def show_wrong(config: InspectConfig, answers: pandas.DataFrame) -> None:
    """The most frequent wrong answers of the last checkpoint, by task."""
    if answers.empty:
        print(
            f"no scores of {config.run} yet: uv run evaluate_run.py {typed_as('run', config.run)}"
        )
        return
    last = answers["checkpoint"].iloc[-1]
    for task, own in answers.query("checkpoint == @last").groupby("task", sort=False):
        wrong = own.query("verdict == 'wrong'")
        rows = wrong.assign(answered=wrong["text"].map(published_answer).map(one_line))
        times = rows.groupby(["question", "answered", "gold"], sort=False).size()
        table = times.sort_values(ascending=False, kind="stable").reset_index(name="times")
        show(f"wrong answers of {last} on {task}", table, config.most)


def show_question(config: InspectConfig, rollouts: Rollouts, answers: pandas.DataFrame) -> None:
    """One question: its visits in training, and its completions at every checkpoint. `question` is
    an id, or its end (7: gsm8k-test-7)."""
    known = {record["question_id"] for record in rollouts} | {*answers["question"]}
    ids = {name for name in known if f"-{name}".endswith(f"-{config.question}")}
    visits = [record for record in rollouts if record["question_id"] in ids]
    answers = answers.query("question in @ids")
    if not visits and answers.empty:
        raise UserError(
            f"question={config.question}: no question of run={config.run} has this id, or one "
            "that ends with it"
        )
    if visits:
        columns = ["step", "question", "reward", "correct", "kept", "of"]
        show("visits in training", visits_of(visits)[columns], config.most)
    if len(answers):
        print("\nin evaluation, whose questions have ids of their own:")
    for row in answers.itertuples():
        head = f"{row.place}, question {row.question}, gold answer {row.gold}: {row.verdict}"
        print(f"\n{one_line(head)}\n{printable(row.text)}")


def show(title: str, table: pandas.DataFrame, most: int) -> None:
    """The first rows of a table under its title, without control characters."""
    print(f"\n{printable(title)}: {len(table)}")
    if len(table):
        rows = table[:most].map(lambda cell: one_line(cell) if isinstance(cell, str) else cell)
        print(rows.to_string(index=False, float_format="{:.3f}".format, max_colwidth=WIDTH))


def one_line(text: str) -> str:
    return " ".join(printable(text).split())
