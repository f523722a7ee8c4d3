"""The questions a run is tested on: rendered by the code that renders them for training.

Questions with a longer prompt than training allowed are left out, as published (MATH-500 becomes
496), and counted.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pods import rewards
from pods.batch import Row
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Completion, Request, seed_of, texts
from pods.evaluation.records import GradedCompletion
from pods.runs import results
from pods.tasks.splits import read_prompts, renamed

MOST_VALUES = 20  # of a column by which accuracies are counted
OURS = ("id", "prompt", "prompt_ids")  # no columns of the data


@dataclass(frozen=True)
class Questions:
    """One split of one task, ready for an engine."""

    task: str  # <name>[.validation][.sample<k>][.greedy]: also the data set of the results
    kind: str  # how answers are graded: math | choice
    rows: list[Row]  # as pods.tasks.read_prompts has them
    dropped: int = 0  # prompts that were too long
    total: int | None = None  # questions that a sample was taken from
    greedy: bool = False  # one greedy completion of each

    @property
    def facts(self) -> dict[str, Any]:
        """Facts noted beside scores; the digest changes with any prompt or gold answer."""
        parts = ("id", "answer", "prompt_ids")
        content = json.dumps([[row[part] for row in self.rows] for part in parts])
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        facts = {"questions": len(self.rows), "dropped": self.dropped, "digest": digest}
        if self.greedy:
            facts["temperature"] = 0.0
        if self.total:
            facts["sampled_from"] = self.total
        return facts

    @property
    def summary(self) -> str:
        """One line for the user: how many questions, of how many, and how many are left out."""
        dropped = f", {self.dropped} longer than in training left out" if self.dropped else ""
        sample = f" of {self.total}, a sample" if self.total else ""
        return f"{self.task}: {len(self.rows)} questions{sample}{dropped}"


def by_value(q: Questions, column: str | None) -> dict[str, list[int]]:
    """The numbers of the questions with each value of a column, and of all, by data set: math500,
    math500/level=1, ... Raises UserError for a column that is not there or has too many values."""
    groups = {q.task: [*range(len(q.rows))]}
    if column is None:
        return groups
    if column not in q.rows[0]:
        names = ", ".join(q.rows[0].keys() - OURS)
        raise UserError(f"by={column}: {q.task} has no such column; it has {names or 'none'}")
    values = [row[column] for row in q.rows]
    known = sorted({*map(str, values)}, key=results.run_order)
    if len(known) > MOST_VALUES:
        raise UserError(
            f"by={column}: has {len(known)} values in {q.task}, at most {MOST_VALUES} are counted "
            "apart; add a column of groups to the data"
        )
    whole = q.task.removesuffix(results.GREEDY)
    for value in known:
        name = f"{whole}/{column}={value}{results.GREEDY * q.greedy}"
        groups[name] = [i for i, own in enumerate(values) if str(own) == value]
    return groups


def requests(task: str, rows: Sequence[Row], seed: int, policy: str, repeat: int) -> list[Request]:
    """One completion of each question; its seed depends on nothing but these and the question."""
    return [
        Request(row["prompt_ids"], [seed_of(seed, policy, task, row["id"], repeat)]) for row in rows
    ]


def records(
    rows: Sequence[Row], groups: Sequence[list[Completion]], tokenizer: Any, stop: list[str]
) -> list[GradedCompletion]:
    """The only completion of each question, without grades."""
    completions = [completion for (completion,) in groups]
    written = texts(tokenizer, completions, stop)
    return [
        GradedCompletion(
            id=row["id"],
            answer=row["answer"],
            completion=text,
            tokens=len(completion.token_ids),
            clipped=completion.clipped,
            well_formed=rewards.is_well_formed(rewards.opened(row["prompt"]) + text),
            correct={},
        )
        for row, text, completion in zip(rows, written, completions, strict=True)
    ]


def load(
    name: str,
    split: str,
    config: TrainConfig,
    tokenizer: Any,
    sample: int | None = None,
    seed: int = 0,
) -> Questions:
    """One split of a task, prompted as in training; a larger `sample` contains smaller ones."""
    data, dropped = read_prompts(config, renamed(config.task, name), split, tokenizer)
    if not len(data):
        raise UserError(
            f"tasks={name}: all {dropped} prompts are longer than the run's "
            f"sampling.max_prompt_length={config.sampling.max_prompt_length}; name another task"
        )
    (kind,) = set(data["kind"])
    label = name if split == "test" else f"{name}.{split}"
    total = None
    if sample and sample < len(data):
        order = sorted(range(len(data)), key=lambda i: seed_of(seed, name, split, data[i]["id"]))
        total = len(data)
        data = data.select(sorted(order[:sample]))
        label += f".sample{sample}"
    return Questions(label, kind, list(data), dropped, total)
