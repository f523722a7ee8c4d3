"""What a run's prompts and completions say, in its ledger and in the records of its evaluation.

uv run scripts/inspect.py run=<run>                        prompts without signal, wrong answers
uv run scripts/inspect.py run=<run> question=7             one question through all checkpoints
uv run scripts/inspect.py run=<run> search="carry the 1"   completions that hold a text
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas
from pydantic import Field

from pods import files
from pods.config.command import command, load_config
from pods.config.errors import UserError
from pods.config.functions import code_of
from pods.config.keys import Section, Text
from pods.ranks import printable
from pods.runs import ledger
from pods.runs.results import run_order
from pods.tasks import splits
from rewards.tags import published_answer

WIDTH = 60  # characters of a text in a table


class InspectConfig(Section):
    run: Text
    question: Text | None
    search: Text | None
    most: int = Field(ge=1)
    output_dir: Text
    results_dir: Text


class Answered(NamedTuple):
    """A completion of an evaluation, and where it is stored."""

    checkpoint: str
    task: str
    repeat: str
    record: dict[str, Any]

    @property
    def verdict(self) -> str:
        verdicts = [*self.record["correct"].values()]
        if not verdicts:
            return "no verdict"
        return "correct" if verdicts[0] else "wrong"


@command("inspect", InspectConfig)
def main(config: InspectConfig) -> None:
    rollouts = files.read_lines(ledger.find(config.output_dir, config.run))
    answers = list(completions(Path(config.results_dir) / config.run))
    if config.question is not None:
        show_question(config, rollouts, answers)
    elif config.search is not None:
        show_texts(config, rollouts, answers)
    else:
        show_signal(config, rollouts)
        show_wrong(config, answers)


def completions(folder: Path) -> Iterator[Answered]:
    """Every stored completion of a run, by checkpoint, task and repeat."""
    paths = folder.glob("*/*/repeat-*.jsonl")
    for path in sorted(paths, key=lambda path: run_order(str(path.relative_to(folder)))):
        checkpoint, task, name = path.relative_to(folder).parts
        for record in files.read_lines(path):
            yield Answered(checkpoint, task, name.removesuffix(".jsonl"), record)


def show_signal(config: InspectConfig, rollouts: list[dict[str, Any]]) -> None:
    """The prompts whose rewards were always equal, and those that were always solved."""
    visits = pandas.DataFrame(
        {
            "question": record["question_id"],
            "signal": min(record["total"]) < max(record["total"]),
            "reward": sum(record["total"]) / len(record["total"]),
            "correct": share_correct(record),
            "gold": shortened(record["answer"]),
        }
        for record in rollouts
    )
    by_question = visits.groupby("question", sort=False).agg(
        visits=("signal", "size"),
        signal=("signal", "sum"),
        reward=("reward", "mean"),
        correct=("correct", "mean"),
        gold=("gold", "first"),
    )
    solved = by_question[by_question["correct"] == 1]
    never = by_question[by_question["signal"] == 0].drop(solved.index, errors="ignore")
    print(
        f"{config.run}: {len(by_question)} questions in {len(visits)} visits; "
        f"{len(solved)} were always solved, {len(never)} others never had signal"
    )
    for title, table in (("always solved", solved), ("never had signal", never)):
        if len(table):
            rows = table.sort_values("visits", ascending=False, kind="stable")
            show(f"{title}, most visits first", rows.reset_index(), config.most)


def share_correct(record: dict[str, Any]) -> float:
    """Of a prompt's rollouts; NaN if nothing graded them."""
    values = record["rewards"].get("correctness")
    if not values:
        return float("nan")
    return sum(value > 0 for value in values) / len(values)


def show_wrong(config: InspectConfig, answers: list[Answered]) -> None:
    """The most frequent wrong answers of the last checkpoint, by task."""
    if not answers:
        print(f"no scores of {config.run} yet: uv run evaluate_run.py run={config.run}")
        return
    last = answers[-1].checkpoint
    for task in dict.fromkeys(one.task for one in answers if one.checkpoint == last):
        wrong: Counter[tuple[str, str, str]] = Counter()
        for one in answers:
            if (one.checkpoint, one.task, one.verdict) == (last, task, "wrong"):
                record = one.record
                said = shortened(published_answer(record["completion"]))
                wrong[record["id"], said, shortened(record["answer"])] += 1
        rows = [
            {"times": times, "question": question, "answered": said, "gold": gold}
            for (question, said, gold), times in wrong.most_common()
        ]
        show(f"wrong answers of {last} on {task}", pandas.DataFrame(rows), config.most)


def show_question(
    config: InspectConfig, rollouts: list[dict[str, Any]], answers: list[Answered]
) -> None:
    """One question: its visits in training, and its completions at every checkpoint."""
    ids = named(config, rollouts, answers)
    visits = [record for record in rollouts if record["question_id"] in ids]
    stored = [one for one in answers if one.record["id"] in ids]
    if not visits and not stored:
        raise UserError(
            f"question={config.question}: no id, and in no stored prompt, of run={config.run}; "
            "the ledger has every prompt with ledger_texts=all"
        )
    if visits:
        rows = [
            {
                "step": record["step"],
                "question": record["question_id"],
                "mean reward": f"{sum(record['total']) / len(record['total']):.3f}",
                "correct": f"{share_correct(record):.2f}",
                "kept": len(record["kept"]),
                "of": len(record["total"]),
            }
            for record in visits
        ]
        show("visits in training", pandas.DataFrame(rows), config.most)
    if stored:
        print("\nin evaluation, whose questions have ids of their own:")
    for one in stored:
        question = f"question {one.record['id']}, gold answer {one.record['answer']}"
        print(f"\n{one.checkpoint} {one.task} {one.repeat}, {printable(question)}: {one.verdict}")
        print(printable(one.record["completion"]))


def named(config: InspectConfig, rollouts: list[dict[str, Any]], answers: list[Answered]) -> set:
    """The ids that `question` is, or ends with (7: gsm8k-test-7); else those of the questions that
    hold this text, for which the run's test questions are read."""
    known = {record["question_id"] for record in rollouts} | {one.record["id"] for one in answers}
    ids = {name for name in known if f"-{name}".endswith(f"-{config.question}")}
    if ids:
        return ids
    ids = {r["question_id"] for r in rollouts if config.question in r.get("prompt", "")}
    training = load_config(Path(config.output_dir) / config.run / ".hydra" / "config.yaml")
    if answers and not code_of(training):
        rows = splits.load_for(training.task, "test", training.data_dir)
        ids |= {row["id"] for row in rows if config.question in row["question"]}
    return ids


def show_texts(
    config: InspectConfig, rollouts: list[dict[str, Any]], answers: list[Answered]
) -> None:
    """The completions that hold a text, those of the training first."""
    found = []
    for record in rollouts:
        for number, text in enumerate(record.get("completions", ())):
            if config.search in text:
                place = f"training step {record['step']}, rollout {number}"
                found.append((place, record["question_id"], text))
    for one in answers:
        if config.search in one.record["completion"]:
            place = f"{one.checkpoint} {one.task} {one.repeat}, {one.verdict}"
            found.append((place, one.record["id"], one.record["completion"]))
    print(f"{len(found)} completions of {config.run} hold {printable(config.search)!r}")
    for place, question, text in found[: config.most]:
        print(f"\n{place}, question {printable(question)}\n{printable(text)}")
    if len(found) > config.most:
        print(f"\n{len(found) - config.most} more: most={len(found)}")


def show(title: str, table: pandas.DataFrame, most: int) -> None:
    """The first rows of a table under its title."""
    print(f"\n{printable(title)}: {len(table)}")
    if len(table):
        print(table[:most].to_string(index=False, float_format="{:.3f}".format))


def shortened(text: str) -> str:
    """On one line, at most WIDTH characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."
