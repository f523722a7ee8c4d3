"""The facts of one task: source, columns, gold answer, prompt text, kind of grading, an example.

A new built-in task is one file with a `TASK`, listed in pods/tasks/splits.py, and one YAML file.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# The mathematics tasks share MATH: "instruct" renders to the published prompts, "base" is ours. A
# text keeps its outer newlines: chat templates differ in trimming them (Qwen keeps, Llama trims).
FORMAT = """
Respond in the following format:
<think>
Reason here. Decide to answer when you are confident as your response length is limited.
</think>
<answer>
{answer}
</answer>
"""
MATH = {
    "instruct": """
You will be given a math question.
Reason about the question and correct your own mistakes if you make any.
"""
    + FORMAT.format(answer="Answer here."),
    "base": """
A careful assistant solves the problem below. It first writes its working between <think> and
</think>, then its final answer, and nothing else, between <answer> and </answer>.
""",
}

Row = dict[str, Any]  # one row in the data set's columns
Placed = tuple[str, int, Row]  # place of a row, named in errors; its number from 1; the row


@dataclass(frozen=True)
class Task:
    """One task; `question` and `gold` raise ValueError on a bad row."""

    name: str
    hub: str  # hub id of the data set, or another name of the source, for messages
    question: Callable[[Row], str]
    gold: Callable[[Row, bool], str]  # legacy True: the published extraction where it differs
    system: Mapping[str, str] = field(default_factory=lambda: MATH)  # task.style -> system text
    kind: str = "math"  # how answers are graded: math | choice
    subsets: tuple[str | None, ...] = (None,)
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})
    select: Callable[[Any, str], Any] | None = None  # (hub split, our split) -> its rows
    rows: Callable[[str], Iterable[Placed]] | None = None  # our split -> rows, instead of the hub
    shuffle_seed: int | None = None  # of train, where the published order is shuffled
    example: Row = field(default_factory=dict)  # one real row
    right: str = ""  # a completion that answers the example
    wrong: str = ""  # a completion in the same form with a wrong answer
    remedy: str = "correct the row"


def completion(working: str, answer: str) -> str:
    """A completion in the form that the system texts ask for."""
    return f"<think>\n{working}\n</think>\n<answer>\n{answer}\n</answer>"


def numbered(place: str, rows: Iterable[Row]) -> Iterator[Placed]:
    """Rows with their places."""
    for number, row in enumerate(rows, start=1):
        yield f"{place} row {number}", number, row


def value(row: Row, column: str) -> Any:
    """The value of a column."""
    if column not in row:
        raise ValueError(f"column {column!r} is missing; found {', '.join(sorted(row)) or 'none'}")
    return row[column]


def text(row: Row, column: str) -> str:
    """The value of a column that must hold text."""
    if not isinstance(found := value(row, column), str):
        raise ValueError(f"column {column!r} must be text, is {short(found)}")
    return found


def text_or_number(row: Row, column: str) -> str:
    """The text of a column that holds text or a number: 27.0 becomes "27"."""
    found = value(row, column)
    if isinstance(found, str):
        return found.strip()
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ValueError(f"column {column!r} must be text or a number, is {short(found)}")
    return str(int(found)) if found == int(found) else str(found)


def short(found: Any) -> str:
    """A value as written in Python, at most 60 characters."""
    written = repr(found)
    return written if len(written) <= 60 else written[:57] + "..."
