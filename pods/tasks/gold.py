"""How a row's question and gold answer are read; ValueError on a bad row."""

import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

Columns = Mapping[str, Any]  # of a row
# The location of a row, for errors; its number from 1; the row.
Located = tuple[str, int, dict[str, Any]]

BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # \{ and \} are characters, not braces
BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
UNBRACED = re.compile(r"\\boxed\s+([^\s${}.]+)")  # a few solutions write \boxed 5


def quoted(names: Iterable[str]) -> str:
    """Names of columns, which may have spaces, for messages."""
    return ", ".join(map(repr, names)) or "none"


def column(row: Columns, name: str) -> Any:
    """The value of a required column."""
    if name not in row:
        raise ValueError(f"column {name!r} is missing; found {quoted(sorted(row))}")
    return row[name]


def text(row: Columns, name: str) -> str:
    """The value of a column, which must be text."""
    value = column(row, name)
    if not isinstance(value, str):
        raise ValueError(f"column {name!r} must be text, is {reprlib.repr(value)}")
    return value


def text_or_number(row: Columns, name: str) -> str:
    """The text of a column that holds text or a number: 27.0 becomes "27"."""
    value = column(row, name)
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise ValueError(f"column {name!r} must be text or a number, is {reprlib.repr(value)}")
    if value == int(value):
        return str(int(value))
    return f"{value:f}".rstrip("0") if isinstance(value, Decimal) else str(value)


def after_hashes(row: Columns, column: str) -> str:
    """The text after "####", without thousands separators."""
    parts = text(row, column).split("####")
    if len(parts) < 2:
        raise ValueError(f'column {column!r} has no "####" before a final answer')
    return parts[1].strip().replace(",", "")


def boxed(row: Columns, column: str) -> str:
    """The content of the last \\boxed{...}. ValueError without one or with open braces."""
    content = after_last_box(row, column)
    depth = 1
    for token in BRACE.finditer(content):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return content[: token.start()].strip()
    raise ValueError(f"the last \\boxed{{ of column {column!r} is never closed")


def boxed_as_published(row: Columns, column: str) -> str:
    """The content of the last \\boxed{...} up to the first "}"."""
    return after_last_box(row, column).split("}")[0].strip()


def after_last_box(row: Columns, column: str) -> str:
    """The solution from the last \\boxed{ on; of one written \\boxed 5 its content, closed."""
    solution = text(row, column)
    boxes = list(BOXED.finditer(solution))
    if boxes:
        return solution[boxes[-1].end() :]
    unbraced = UNBRACED.findall(solution)
    if unbraced:
        return unbraced[-1] + "}"
    raise ValueError(f"column {column!r} has no \\boxed{{...}}")
