"""What a task is, and how its rows are read: from the hub, or from data_dir/<task>/<split>.jsonl,
with the columns of the hub; a bad row is an error with its location.

A new built-in task is one file with a `TASK`, listed in pods/tasks/splits.py, and one YAML file.
"""

import functools
import json
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pods import ranks
from pods.batch import Row
from pods.config.errors import UserError
from pods.tasks.gold import Located, text

if TYPE_CHECKING:
    from datasets import Dataset

# Names of what is made of a question, and of what reward functions get beside its columns.
TAKEN = (
    *("prompt", "prompt_ids", "prompts", "completion", "completions", "completion_ids"),
    *("trainer_state", "log_extra", "log_metric"),
)
say_once = functools.cache(ranks.say)  # a training reads a file again for its evaluations
ID_COLUMNS = ("id", "idx", "unique_id")  # a row without any of them is known by its number


@dataclass(frozen=True)
class Task:
    """One task; `question_of` and `gold` take a row and a column, with ValueError on a bad row."""

    name: str
    question: str  # the column of the question
    answer: str  # the column from which `gold` reads the gold answer
    gold: Callable[[Row, str], str | None]  # None: a row of the user's is left out
    question_of: Callable[[Row, str], str] = text
    hub: str = ""  # hub id of the data set
    kind: str = "math"  # how answers are graded: math | choice
    subsets: tuple[str | None, ...] = (None,)
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})
    select: Callable[["Dataset", str], "Dataset"] | None = None  # (hub split, ours) -> its rows
    rows: Callable[[str], Iterable[Located]] | None = None  # our split -> rows, instead of the hub
    shuffle_seed: int | None = None  # of train, if the published order is shuffled
    remedy: str = "correct the row"
    source: str | None = None  # the task whose rows these are, if it is another

    @property
    def folder(self) -> str:
        """The folder of its rows in data_dir."""
        return self.source or self.name


def read(task: Task, split: str, source: Iterable[Located]) -> "Dataset":
    """All rows of a split in source order: id, question, answer, kind and their other columns."""
    rows: list[Row] = []
    locations: dict[str, str] = {}
    left_out = 0
    for location, number, row in source:
        try:
            example = _example(task, row, number)
        except Exception as error:  # ours of a bad row is a ValueError; the user's code raises any
            reason = error if isinstance(error, ValueError) else repr(error)
            raise UserError(f"{location}: {reason}; {task.remedy}") from None
        if example is None:
            left_out += 1
            continue
        first = locations.setdefault(example["id"], location)
        if first != location:
            raise UserError(
                f"{location}: id {example['id']!r} is also the id of {first}; "
                "ids must be unique in a split; change or remove the id"
            )
        rows.append(example)
    if left_out:
        say_once(
            f"task={task.name}: {left_out} of {left_out + len(rows)} rows of {split} are left out, "
            "since task.gold returned None for them"
        )
    if not rows:
        raise UserError(f"{task.name}/{split}: no rows in its file or data set; give some")
    return _dataset(rows)


def _example(task: Task, row: Row, number: int) -> Row | None:
    """A row as it is trained on; None if the user's function has no gold answer for it."""
    if not isinstance(row, dict):
        raise ValueError("not a JSON object with named columns")
    identity = next((row[name] for name in ID_COLUMNS if row.get(name) is not None), number)
    ours = {
        "id": str(identity),
        "question": task.question_of(row, task.question),
        "answer": task.gold(row, task.answer),
        "kind": task.kind,
    }
    if ours["answer"] is None:
        return None
    for name, key in (("question", "question"), ("gold answer", "answer")):
        if not isinstance(ours[key], str) or not ours[key].strip():
            raise ValueError(f"the {name} must be text, is {reprlib.repr(ours[key])}")
    return ours | {name: row[name] for name in row if name not in (*ours, *TAKEN)}


def _dataset(rows: list[Row]) -> "Dataset":
    # takes seconds: only when rows are read
    from datasets import Dataset, Features, Json, concatenate_datasets

    columns = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            column = Dataset.from_dict({name: values}, on_mixed_types="use_json")
            if "Json(" in str(column.features):
                # It would take a text that is JSON, such as "007" or "true", for what it says.
                texts = [json.dumps(value, ensure_ascii=False) for value in values]
                column = Dataset.from_dict({name: texts}, Features({name: Json()}))
        except Exception as error:  # Arrow's, of a dozen types
            text = getattr(error, "object", None)  # UnicodeEncodeError's, of a lone surrogate
            raise UserError(
                f"column {name!r}: cannot be stored ({type(error).__name__}: {error})"
                f"{f' in {reprlib.repr(text)}' if text else ''}; change or remove it"
            ) from None
        columns.append(column)
    return concatenate_datasets(columns, axis=1)


def hub_rows(task: Task, split: str, file: str) -> Iterator[Located]:
    number = 0
    remedy = f"set data_dir=<folder> with {file} in it, or load it once with a network"
    for subset in task.subsets:
        rows = download(f"task={task.name}", task.hub, subset, remedy, split=task.splits[split])
        if task.select:
            rows = task.select(rows, split)
        source = f"{task.hub}/{subset}" if subset else task.hub
        for row in rows:
            number += 1
            yield f"{source}, {split} row {number}", number, row


def download(setting: str, hub: str, subset: str | None, remedy: str, **split: str) -> Any:
    """One split of a hub data set, or all. UserError names `setting` (key=value) and `remedy`."""
    import datasets

    try:
        return datasets.load_dataset(hub, subset, **split)
    except Exception as error:  # the hub's client raises a dozen unrelated types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{setting}: cannot get {hub} ({reason}); {remedy}") from None
