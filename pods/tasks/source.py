"""Where a task's rows come from: local JSONL or the hub, every fault reported with its place.

A task file says what its rows mean (a Source); this file reads them. For clusters without a network
`data_dir/<task>/<split>.jsonl` holds the rows in the hub dataset's own columns.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pods.cli import UserError
from pods.hub import go_offline_if_unreachable

ID_COLUMNS = ("id", "idx", "unique_id")  # a row without any of them is known by its number

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """One task's facts. `gold(row, legacy)` and `question(row)` raise ValueError on a bad row."""

    name: str
    hub: str
    columns: tuple[str, ...]
    question: Callable[[Row], str]
    gold: Callable[[Row, bool], str]
    splits: tuple[str, ...] = ("train", "test")
    subsets: tuple[str | None, ...] = (None,)
    kind: str = "math"
    # (load one hub split, our split) -> rows, where the hub's splits are not the task's
    from_hub: Callable[[Any, str], Any] | None = None
    shuffle_seed: int | None = None  # of train, where the published order is shuffled


def read(source: Source, split: str, data_dir: str | None, legacy: bool) -> list[dict[str, str]]:
    """All rows of a split as {id, question, answer, kind}, in file order."""
    rows, seen = [], {}
    for place, number, row in _local(source, split, data_dir) if data_dir else _hub(source, split):
        try:
            example = _example(source, row, number, legacy)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise UserError(f"{place}: {error}") from None
        if example["id"] in seen:
            raise UserError(
                f"{place}: id {example['id']!r} is also the id of {seen[example['id']]};"
                " ids must be unique in a split"
            )
        seen[example["id"]] = place
        rows.append(example)
    if not rows:
        raise UserError(f"{source.name}/{split}: no rows in {data_dir or source.hub}")
    return rows


def _example(source: Source, row: Row, number: int, legacy: bool) -> dict[str, str]:
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object with columns {', '.join(source.columns)}")
    for column in source.columns:
        if column not in row:
            raise ValueError(
                f"column {column!r} is missing; found {', '.join(sorted(row)) or 'none'}"
            )
    identity = next((row[column] for column in ID_COLUMNS if row.get(column) is not None), number)
    question, answer = source.question(row), source.gold(row, legacy)
    if not question.strip():
        raise ValueError("the question is empty")
    if not answer:
        raise ValueError("the gold answer is empty")
    return {"id": str(identity), "question": question, "answer": answer, "kind": source.kind}


def _local(source: Source, split: str, data_dir: str) -> Iterator[tuple[str, int, Row]]:
    path = Path(data_dir) / source.name / f"{split}.jsonl"
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(
            f"data_dir={data_dir}: cannot read {path} ({error.strerror}); put the rows of"
            f" {source.hub} there, one JSON object a line, or unset data_dir to use the hub"
        ) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: not a JSON object ({error})") from None
        yield place, number, row


def _hub(source: Source, split: str) -> Iterator[tuple[str, int, Row]]:
    number = 0
    for subset in source.subsets:
        for row in _download(source, subset, split):
            number += 1
            yield f"{source.hub}{f'/{subset}' if subset else ''}, {split} row {number}", number, row


def _download(source: Source, subset: str | None, split: str) -> Any:
    import datasets  # takes seconds, and only the hub needs it

    go_offline_if_unreachable()
    try:
        if source.from_hub:
            return source.from_hub(
                lambda hub_split: datasets.load_dataset(source.hub, split=hub_split), split
            )
        return datasets.load_dataset(source.hub, subset, split=split)
    except Exception as error:  # the hub's client raises a dozen unrelated types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"task={source.name}: cannot get {source.hub} ({reason}); set data_dir=<folder> with"
            f" {source.name}/{split}.jsonl in it, or load it once where there is a network"
        ) from None


def text(row: Row, column: str) -> str:
    """A column that must hold text."""
    if not isinstance(row[column], str):
        raise ValueError(f"column {column!r} must be text, is {_short(row[column])}")
    return row[column]


def text_or_number(row: Row, column: str) -> str:
    """A column that holds text or a number, as text: 27.0 becomes "27"."""
    value = row[column]
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"column {column!r} must be text or a number, is {_short(value)}")
    return str(int(value)) if value == int(value) else str(value)


def _short(value: Any) -> str:
    written = repr(value)
    return written if len(written) <= 60 else written[:57] + "..."
