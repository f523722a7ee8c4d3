"""The facts of one task: source, columns, gold answer, kind of grading. A new built-in task is one
file with a `TASK`, listed in pods/tasks/__init__.py, and one YAML file."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset

Row = dict[str, Any]  # one row in the data set's columns
Placed = tuple[str, int, Row]  # place of a row, named in errors; its number from 1; the row


@dataclass(frozen=True)
class Task:
    """One task; `question` and `gold` raise ValueError on a bad row."""

    name: str
    hub: str  # hub id of the data set, or another name of the source, for messages
    question: Callable[[Row], str]
    gold: Callable[[Row, bool], str]  # True: the published extraction, if it is another
    kind: str = "math"  # how answers are graded: math | choice
    subsets: tuple[str | None, ...] = (None,)
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})
    select: Callable[["Dataset", str], "Dataset"] | None = None  # (hub split, ours) -> its rows
    rows: Callable[[str], Iterable[Placed]] | None = None  # our split -> rows, instead of the hub
    shuffle_seed: int | None = None  # of train, if the published order is shuffled
    remedy: str = "correct the row"


def numbered(place: str, rows: Iterable[Row]) -> Iterator[Placed]:
    """Rows with their places."""
    for number, row in enumerate(rows, start=1):
        yield f"{place} row {number}", number, row


def column(row: Row, name: str) -> Any:
    """The value of a column."""
    if name not in row:
        raise ValueError(f"column {name!r} is missing; found {', '.join(sorted(row)) or 'none'}")
    return row[name]


def text(row: Row, name: str) -> str:
    """The value of a column that must hold text."""
    if not isinstance(value := column(row, name), str):
        raise ValueError(f"column {name!r} must be text, is {short(value)}")
    return value


def text_or_number(row: Row, name: str) -> str:
    """The text of a column that holds text or a number: 27.0 becomes "27"."""
    value = column(row, name)
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"column {name!r} must be text or a number, is {short(value)}")
    return str(int(value)) if value == int(value) else str(value)


def short(value: Any) -> str:
    """A value as written in Python, at most 60 characters."""
    written = repr(value)
    return written if len(written) <= 60 else written[:57] + "..."
