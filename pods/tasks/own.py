"""Task `own`: the user's data set, described by the keys of config/task/own.yaml without code.

uv run train.py task=own task.source=q.jsonl task.question=problem task.answer=solution
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pods.batch import Row
from pods.config import functions, keys
from pods.config.errors import UserError
from pods.files import few
from pods.tasks.files import ENDINGS, READABLE, exact, numbered, rows_of
from pods.tasks.gold import Located, after_hashes, boxed, text_or_number
from pods.tasks.task import Task, download, say_once

if TYPE_CHECKING:
    from datasets import Dataset

NEEDED = {  # key -> its value; all are null for the built-in tasks
    "source": "a JSONL, CSV or Parquet file, folder or hub id",
    "question": "one of its columns",
    "answer": "one of its columns",
    "gold": "as_is, after_hashes, boxed or path/to/file.py:function",
    "kind": "math or choice",
}
GOLDS = {"as_is": text_or_number, "after_hashes": after_hashes, "boxed": boxed}
VALIDATION = dict.fromkeys(("dev", "val", "valid"), "validation")  # names of a split
# train.csv, or a shard as in a snapshot of the hub, train-00000-of-00002.parquet
SPLIT_FILE = re.compile(
    r"(train|validation|dev|val|valid|test)(?:-\d+-of-(\d+))?\.(?:jsonl?|[ct]sv|parquet)"
)
DIVISION = ("test_size", "stratify")  # keys that may be null
LARGEST_TEST = 256  # unless test_size says more


def local_files(source: str | None) -> dict[str, list[Path]]:
    """The files of a source on this disk by split, "" if one file is divided; {} for a hub id. A
    folder without any may have them in data/. Raises UserError for two files of one split, and for
    shards of which one is missing."""
    path = Path(source or "no source")
    if path.is_file():
        return {"": [path]}
    for folder in (path, path / "data"):
        files: dict[str, list[Path]] = defaultdict(list)
        for file in sorted(folder.glob("*")):
            match = SPLIT_FILE.fullmatch(file.name)
            if match:
                files[VALIDATION.get(match[1], match[1])].append(file)
        for split, parts in files.items():
            if any(len(parts) != int(SPLIT_FILE.fullmatch(file.name)[2] or 1) for file in parts):
                raise UserError(
                    f"task.source={source}: {few(file.name for file in parts)} are not one file of "
                    f"{split}, nor all of its shards; remove or add files"
                )
        if files:
            return files
    return {}


def define(task: keys.TaskKeys) -> Task:
    """The task that the config describes, with the splits of its source. Raises UserError if the
    source cannot be read, or the gold function is missing."""
    refuse_unreadable(task)
    parts = _parts(task)
    gold = GOLDS.get(task.gold)
    if gold is None:
        function = functions.load("task.gold", task.gold)

        def gold(row: Row, _: str) -> str | None:
            return function(dict(row))

    return Task(
        name="own",
        splits=dict.fromkeys(parts, ""),
        rows=lambda split: parts[split](),
        question=task.question,
        answer=task.answer,
        gold=gold,
        kind=task.kind,
        remedy="correct the row, the line of column names above it, task.question, task.answer or "
        "task.gold",
    )


def refuse_unreadable(task: keys.TaskKeys) -> None:
    """Raise UserError for a source on this disk that is not there, and for a folder without a file
    of a split."""
    path = Path(task.source)
    is_local = path.suffix in ENDINGS or path.is_absolute() or task.source.startswith(".")
    if is_local and not path.exists():
        raise UserError(
            f"task.source={task.source}: no such file or folder (from {Path.cwd()}); "
            "correct the path"
        )
    if path.is_dir() and not local_files(task.source):
        split = "['train']" if (path / "dataset_dict.json").is_file() else ""
        raise UserError(
            f"task.source={task.source}: has no train.<ending>; give {READABLE}. Of a folder of "
            f"save_to_disk write one: datasets.load_from_disk(<folder>){split}"
            ".to_parquet('train.parquet')"
        )


def refuse_absent_column(task: keys.TaskKeys, columns: Iterable[str]) -> None:
    """Raise UserError if task.stratify is none of the columns."""
    if task.stratify and task.stratify not in columns:
        raise UserError(
            f"task.stratify={task.stratify}: the source has no such column; set one of "
            f"{', '.join(map(str, columns))}"
        )


def _parts(task: keys.TaskKeys) -> dict[str, Callable[[], Iterable[Located]]]:
    """A reader of the rows for each split of the source. A source with one split is divided:
    task.test_size questions are for test, by default a fifth, at most LARGEST_TEST; of fewer than
    5 rows none."""
    source = task.source
    parts: dict[str, Callable[[], Iterable[Located]]] = {}
    for split, files in local_files(source).items():
        parts[split] = partial(rows_of_files, files)
    if not parts:
        hub, _, subset = source.partition(":")
        remedy = f"give {READABLE} (hub_id:subset if it has several)"
        splits = download(f"task.source={source}", hub, subset or None, remedy)
        for split, rows in splits.items():
            parts[VALIDATION.get(split, split)] = partial(rows_of_hub, f"{source}, {split}", rows)
    if len(parts) > 1 or Path(source).is_dir():
        if task.test_size and "test" in parts:
            raise UserError(
                f"task.test_size={task.test_size}: {source} has its own test split; leave it out"
            )
        return parts
    (read,) = parts.values()
    pairs, columns = [], {}
    for *_, row in read():
        row = row if isinstance(row, dict) else {}  # another one is refused where it is read
        columns |= dict.fromkeys(row)
        pairs.append((row.get(task.question), row.get(task.stratify)))
    refuse_absent_column(task, columns)
    size = task.test_size or min(LARGEST_TEST, len(pairs) // 5)
    if size and size >= len(pairs):
        raise UserError(
            f"task.test_size={size}: leaves no training question of {len(pairs)} in {source}; "
            f"set at most {len(pairs) - 1}"
        )
    values = [value for _, value in pairs] if task.stratify else None
    chosen = chosen_by_digest([question for question, _ in pairs], size, values)
    say_once(f"task=own: {size} of the {len(pairs)} questions of {source} are its test split")
    # The rows are read again: a million of them would fill the memory beside their prompts.
    train = {"train": lambda: (row for i, row in enumerate(read()) if i not in chosen)}
    test = {"test": lambda: (row for i, row in enumerate(read()) if i in chosen)}
    return train | test if chosen else train


def rows_of_files(files: list[Path]) -> Iterable[Located]:
    """The rows of the shards of one split, numbered through."""
    rows = chain.from_iterable(map(rows_of, files))
    if len(files) == 1:
        return rows
    return ((location, number, row) for number, (location, _, row) in enumerate(rows, 1))


def rows_of_hub(location: str, rows: "Dataset") -> Iterable[Located]:
    """The rows of a split of a hub data set."""
    if "float32" not in str(rows.features):
        return numbered(location, rows)
    batches = rows.with_format("arrow").iter(1000)
    return numbered(location, chain.from_iterable(map(exact, batches)))


def chosen_by_digest(
    questions: Sequence[object], size: int, values: Sequence[object] | None = None
) -> set[int]:
    """The indices of `size` questions. values: of a column; the chosen and the others keep their
    shares, and places that rounding leaves go to the values that lack most."""
    order = by_digest(questions)
    strata: dict[str, list[int]] = defaultdict(list)
    for i in order:
        strata[str(values[i]) if values else ""].append(i)
    shares = {value: size * len(rows) / len(order) for value, rows in strata.items()}
    counts = {value: int(share) for value, share in shares.items()}
    lacking = sorted(strata, key=lambda value: (counts[value] - shares[value], value))
    for value in lacking[: size - sum(counts.values())]:
        counts[value] += 1
    return {i for value, rows in strata.items() for i in rows[: counts[value]]}


def by_digest(questions: Sequence[object]) -> list[int]:
    """The indices of the questions, ordered by a hash of their texts: equal questions are adjacent,
    and neither the order of the rows nor further rows change the order of two questions."""
    digests = [hashlib.sha256(ascii(question).encode()).digest() for question in questions]
    return sorted(range(len(digests)), key=digests.__getitem__)
