"""Task `own`: the user's data set, described by the keys of config/task/own.yaml without code.

uv run train.py task=own task.source=q.jsonl task.question=problem task.answer=solution
"""

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pods import ranks
from pods.batch import Row
from pods.config import functions, keys
from pods.config.errors import UserError, one_line
from pods.tasks.gold import after_hashes, boxed, text_or_number
from pods.tasks.task import Placed, Task, download, json_lines, numbered

NEEDED = {  # key -> its value; all are null for the built-in tasks
    "source": "a JSONL, CSV or Parquet file, folder or hub id",
    "question": "one of its columns",
    "answer": "one of its columns",
    "gold": "as_is, after_hashes, boxed or path/to/file.py:function",
    "kind": "math or choice",
}
GOLDS = {"as_is": text_or_number, "after_hashes": after_hashes, "boxed": boxed}
ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
READABLE = "a .jsonl, .json, .csv, .tsv or .parquet file, a folder with train.<ending>, or a hub id"
LARGEST_TEST = 256


def local_files(source: str | None) -> dict[str, Path]:
    """The files of a source on this disk by split, "" if one file is divided; {} for a hub id.
    Raises UserError for two files of one split."""
    path = Path(source or "no source")
    if path.is_file():
        return {"": path}
    files: dict[str, Path] = {}
    for split in ("train", "validation", "test"):
        for ending in ENDINGS:
            file = path / f"{split}{ending}"
            if file.is_file() and files.setdefault(split, file) != file:
                raise UserError(f"task.source={file}: is a second file of its split; remove one")
    return files


def columns_of(file: Path) -> list[str]:
    """The columns of a file by its first row. Raises UserError if it cannot be read."""
    for _, _, row in _rows(file):
        if isinstance(row, dict):
            return list(row)
        break
    raise UserError(f"task.source={file}: has no row with columns; give {READABLE}")


def columns(task: keys.TaskKeys) -> str:
    """The columns of a source on this disk, for messages; empty without one."""
    for file in local_files(task.source).values():
        return f": {', '.join(columns_of(file))}"
    return ""


def define(task: keys.TaskKeys) -> Task:
    """The task that the config describes, with the splits of its source. Raises UserError if the
    source cannot be read, or the gold function is missing."""
    parts = _parts(task)
    return Task(
        name="own",
        hub=task.source,
        splits=dict.fromkeys(parts, ""),
        rows=parts.__getitem__,
        question=task.question,
        answer=task.answer,
        gold=_gold(task.gold),
        kind=task.kind,
        remedy="correct the row, task.question, task.answer or task.gold",
    )


def _gold(name: str) -> Callable[[Row, str], str]:
    """The gold answer of a row and a column; a function of the user's gets the row alone."""
    if name in GOLDS:
        return GOLDS[name]
    function = functions.load("task.gold", name)
    return lambda row, _: function(dict(row))


def refuse_unreadable(task: keys.TaskKeys) -> None:
    """Raise UserError for a source on this disk that is not there or lacks a column, by the head of
    its files."""
    path = Path(task.source)
    is_local = path.suffix in ENDINGS or path.is_absolute() or task.source.startswith(".")
    if is_local and not path.exists():
        raise UserError(
            f"task.source={task.source}: no such file or folder (from {Path.cwd()}); "
            "correct the path"
        )
    needed = {"question": task.question}
    if task.gold in GOLDS:
        needed["answer"] = task.answer
    for file in local_files(task.source).values():
        names = columns_of(file)
        for key, name in needed.items():
            if name not in names:
                raise UserError(
                    f"task.{key}={name}: {file} has no such column; set one of {', '.join(names)}"
                )


def _parts(task: keys.TaskKeys) -> dict[str, Iterable[Placed]]:
    """The rows of each split that the source has; a source of one part is divided."""
    source = task.source
    refuse_unreadable(task)
    path = Path(source)
    if path.is_file():
        return _divided(task, list(_rows(path)))
    if path.is_dir():
        return {split: _rows(file) for split, file in local_files(source).items()}
    hub, _, subset = source.partition(":")
    splits = download(
        f"task.source={source}",
        hub,
        subset or None,
        remedy=f"give {READABLE} (hub_id:subset if it has several)",
    )
    parts = {split: numbered(f"{source}, {split}", rows) for split, rows in splits.items()}
    if len(parts) > 1:
        return parts
    return _divided(task, list(*parts.values()))


def _rows(file: Path) -> Iterator[Placed]:
    """The rows of a file, read here: the hub's library would copy them into its cache, and take
    the copy for every later file of this name and time. Raises UserError."""
    if file.suffix == ".jsonl":
        yield from json_lines(file)
        return
    try:
        yield from numbered(str(file), _objects(file))
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise UserError(
            f"task.source={file}: cannot be read ({one_line(error)}); give {READABLE}"
        ) from None


def _objects(file: Path) -> Iterator[Row]:
    """The rows of a file that is not JSONL; every cell of a CSV or TSV file is a text. Raises
    OSError, ValueError, TypeError or csv.Error."""
    if file.suffix == ".json":
        yield from json.loads(file.read_bytes())
    elif file.suffix == ".parquet":
        from pyarrow.parquet import ParquetFile

        for batch in ParquetFile(file).iter_batches():
            yield from batch.to_pylist()
    elif file.suffix in DELIMITERS:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, delimiter=DELIMITERS[file.suffix], strict=True)
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(
                        f"line {reader.line_num} has more or fewer cells than the head; "
                        "quote cells that hold a delimiter"
                    )
                yield {name: as_written(cell) for name, cell in row.items()}
    else:
        raise ValueError("unknown ending")


def as_written(cell: str) -> str:
    """The text of a cell; 27.0 is 27, as tables of numbers are saved."""
    return re.sub(r"^(-?[0-9]+)\.0$", r"\1", cell)


def _divided(task: keys.TaskKeys, rows: list[Placed]) -> dict[str, Iterable[Placed]]:
    """Train and test of one list of rows: a fifth, at most 256, for test (none of under 5 rows)."""
    # A row that is no object is refused where it is read.
    order = by_digest([isinstance(row, dict) and row.get(task.question) for *_, row in rows])
    size = min(LARGEST_TEST, len(rows) // 5)
    ranks.say(f"task=own: {size} of the {len(rows)} questions of {task.source} are its test split")
    indices = {"train": order[size:], "test": order[:size]}
    return {split: [rows[i] for i in sorted(part)] for split, part in indices.items() if len(part)}


def by_digest(questions: Sequence[object]) -> list[int]:
    """The indices of the questions in an order that their texts alone decide: equal ones stand
    together, the order of the rows does not count, and further rows change no two others."""
    digests = [hashlib.sha256(ascii(question).encode()).digest() for question in questions]
    return sorted(range(len(digests)), key=digests.__getitem__)
