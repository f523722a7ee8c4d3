"""Readers of users' files: JSONL, JSON, CSV, TSV or Parquet in UTF-8."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pods.batch import Row
from pods.config.errors import UserError
from pods.tasks.gold import Located

if TYPE_CHECKING:
    from pyarrow import Table

ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
READABLE = (
    "a .jsonl, .json, .csv, .tsv (in UTF-8) or .parquet file, a folder with train.<ending>, or a "
    "hub id"
)


def rows_of(file: Path) -> Iterator[Located]:
    """The rows of a file, read here: the hub's library would copy them into its cache, and take
    the copy for every later file of this name and time. Raises UserError."""
    if file.suffix == ".jsonl":
        yield from json_lines(file)
        return
    try:
        yield from numbered(str(file), objects(file))
    except (OSError, ValueError, TypeError, RecursionError, csv.Error) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"task.source={file}: cannot be read ({reason}); give {READABLE}") from None


def json_lines(path: Path, remedy: str = "make it readable") -> Iterator[Located]:
    """The objects of a JSONL file. UserError with `remedy` if the file cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); {remedy}") from None
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                yield f"{path}:{number}", number, json.loads(line, object_pairs_hook=as_row)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{path}:{number}: not a JSON object ({error}); write one object a line"
            ) from None


def objects(file: Path) -> Iterator[Row]:
    """The rows of a file that is not JSONL; every cell of a CSV or TSV file is a text. Raises
    OSError, ValueError, TypeError, RecursionError or csv.Error."""
    if file.suffix == ".json":
        yield from json.loads(file.read_bytes(), object_pairs_hook=as_row)
    elif file.suffix == ".parquet":
        from pyarrow.parquet import ParquetFile

        for batch in ParquetFile(file).iter_batches():
            as_row([(name, None) for name in batch.schema.names])
            yield from exact(batch)
    elif file.suffix in (".csv", ".tsv"):
        text = io.StringIO(file.read_bytes().decode("utf-8-sig"), newline="")
        delimiter = "," if file.suffix == ".csv" else "\t"
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        head = next(reader, [])
        for cells in filter(None, reader):
            if len(cells) != len(head):
                raise ValueError(
                    f"line {reader.line_num} has more or fewer cells than the head; "
                    "quote cells that hold a delimiter"
                )
            yield as_row([*zip(head, map(as_written, cells), strict=True)])
    else:
        raise ValueError("unknown ending")


def as_row(pairs: list[tuple[str, Any]]) -> Row:
    """The cells of a row by column. ValueError for two columns of one name: one would be lost."""
    row: Row = {}
    for name, value in pairs:
        if name and name in row:  # empty columns of a spreadsheet have no name
            raise ValueError(f"two columns are called {name!r}; rename or remove one")
        row[name] = value
    return row


def as_written(cell: str) -> str:
    """The text of a cell; 27.0 is 27, as tables of numbers are saved."""
    return re.sub(r"^(-?[0-9]+)\.0$", r"\1", cell)


def exact(table: "Table") -> list[Row]:
    """The rows of a table; a float32 is its shortest decimal, 0.1 and not 0.10000000149011612."""
    for i, field in enumerate(table.schema):
        if field.type == "float":
            table = table.set_column(i, field.name, table[i].cast("string").cast("double"))
    return table.to_pylist()


def numbered(location: str, rows: Iterable[Row]) -> Iterator[Located]:
    """The rows, each with a location for messages and its number."""
    for number, row in enumerate(rows, start=1):
        yield f"{location} row {number}", number, row
