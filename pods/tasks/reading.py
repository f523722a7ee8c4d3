"""Reads the rows of a task from the hub, or from data_dir/<task>/<split>.jsonl with the hub's
columns; a bad row is an error with its place."""

import json
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.config.errors import UserError
from pods.tasks.task import Placed, Row, Task

if TYPE_CHECKING:
    from datasets import Dataset

ID_COLUMNS = ("id", "idx", "unique_id")  # a row without any of them is known by its number


def read(task: Task, split: str, data_dir: str | None, legacy: bool) -> "Dataset":
    """All rows of a split in source order: id, question, answer, kind and their other columns."""
    rows: list[Row] = []
    places: dict[str, str] = {}
    for place, number, row in _placed(task, split, data_dir):
        try:
            example = _example(task, row, number, legacy)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise UserError(f"{place}: {error}; {task.remedy}") from None
        if (first := places.setdefault(example["id"], place)) != place:
            remedy = "ids must be unique in a split; change or remove the id"
            raise UserError(f"{place}: id {example['id']!r} is also the id of {first}; {remedy}")
        rows.append(example)
    if not rows:
        raise UserError(f"{task.name}/{split}: no rows in {data_dir or task.hub}")
    return _dataset(rows)


def _placed(task: Task, split: str, data_dir: str | None) -> Iterable[Placed]:
    if task.rows:
        return task.rows(split)
    if data_dir:
        remedy = f"put the rows of {task.hub} there, or unset data_dir to use the hub"
        return json_lines(Path(data_dir) / task.name / f"{split}.jsonl", remedy)
    return _hub(task, split)


def _example(task: Task, row: Row, number: int, legacy: bool) -> Row:
    if not isinstance(row, dict):
        raise ValueError("not a JSON object with named columns")
    identity = next((row[name] for name in ID_COLUMNS if row.get(name) is not None), number)
    question, answer = task.question(row), task.gold(row, legacy)
    for name, value in (("question", question), ("gold answer", answer)):
        if not value.strip():
            raise ValueError(f"the {name} is empty")
    ours = {"id": str(identity), "question": question, "answer": answer, "kind": task.kind}
    # `prompt` is written later, by the code that renders the question
    return ours | {name: row[name] for name in row if name not in (*ours, "prompt")}


def _dataset(rows: list[Row]) -> "Dataset":
    from datasets import Dataset, concatenate_datasets  # takes seconds: only when rows are read

    columns = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = {name: [row.get(name) for row in rows]}
        try:
            columns.append(Dataset.from_dict(values, on_mixed_types="use_json"))
        except Exception as error:  # Arrow's, of a dozen types
            reason = f"cannot be stored ({type(error).__name__}: {error}); change or remove it"
            raise UserError(f"column {name!r}: {reason}") from None
    return concatenate_datasets(columns, axis=1)


def json_lines(path: Path, remedy: str = "make it readable") -> Iterator[Placed]:
    """The objects of a JSONL file. UserError with `remedy` if the file cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); {remedy}") from None
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                yield f"{path}:{number}", number, json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"not a JSON object ({error}); write one object a line"
            raise UserError(f"{path}:{number}: {reason}") from None


def _hub(task: Task, split: str) -> Iterator[Placed]:
    numbers, file = count(1), f"{task.name}/{split}.jsonl"
    remedy = f"set data_dir=<folder> with {file} in it, or load it once with a network"
    for subset in task.subsets:
        rows = download("task", task.name, task.hub, subset, remedy, split=task.splits[split])
        source = f"{task.hub}/{subset}" if subset else task.hub
        for row in task.select(rows, split) if task.select else rows:
            number = next(numbers)
            yield f"{source}, {split} row {number}", number, row


def download(key: str, value: str, hub: str, subset: str | None, remedy: str, **split: str) -> Any:
    """One split of a hub data set, or all. UserError names key=value and `remedy`."""
    import datasets

    try:
        return datasets.load_dataset(hub, subset, **split)
    except Exception as error:  # the hub's client raises a dozen unrelated types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{value}: cannot get {hub} ({reason}); {remedy}", key) from None
