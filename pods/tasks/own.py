"""Task `own`: the user's data set, described by the keys of config/task/own.yaml without code.

uv run train.py task=own task.source=q.jsonl task.question=problem task.answer=solution
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from pods import ranks
from pods.batch import Row
from pods.config import functions, keys
from pods.config.errors import UserError
from pods.tasks.gsm8k import after_hashes
from pods.tasks.math import boxed
from pods.tasks.task import Placed, Task, download, json_lines, numbered, text, text_or_number

NEEDED = {  # key -> its value; all are null for the built-in tasks
    "source": "a JSONL file, folder or hub id",
    "question": "one of its columns",
    "answer": "one of its columns",
    "gold": "as_is, after_hashes, boxed or path/to/file.py:function",
    "kind": "math or choice",
}
GOLDS = {"as_is": text_or_number, "after_hashes": after_hashes, "boxed": boxed}
SPLIT_SEED = 42  # fixed: runs with different seeds must share one test split
LARGEST_TEST = 256


def columns(task: keys.TaskKeys) -> str:
    """The columns of a source on this disk, for messages; empty without one."""
    path = Path(task.source or "no source")
    path = next(path.glob("*.jsonl"), path)
    if not path.is_file():
        return ""
    for _, _, row in json_lines(path):
        if isinstance(row, dict):
            return f": {', '.join(row)}"
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
        question=lambda row: text(row, task.question),
        gold=_gold(task.answer, task.gold),
        kind=task.kind,
        remedy="correct the row, task.question, task.answer or task.gold",
    )


def _gold(column: str, name: str) -> Callable[[Row], str]:
    if name in GOLDS:
        return lambda row: GOLDS[name](row, column)
    function = functions.load("task.gold", name)
    return lambda row: function(dict(row))


def refuse_missing(source: str) -> None:
    """Raise UserError for the path of a file or folder that is not there."""
    path = Path(source)
    is_local = path.suffix in (".jsonl", ".json") or path.is_absolute() or source.startswith(".")
    if is_local and not path.exists():
        raise UserError(
            f"task.source={source}: no such file or folder (from {Path.cwd()}); correct the path"
        )


def _parts(task: keys.TaskKeys) -> dict[str, Iterable[Placed]]:
    """The rows of each split that the source has; a source of one part is divided."""
    source = task.source
    path = Path(source)
    if path.is_file():
        return _divided(source, list(json_lines(path)))
    if path.is_dir():
        files = {split: path / f"{split}.jsonl" for split in ("train", "validation", "test")}
        return {split: json_lines(file) for split, file in files.items() if file.is_file()}
    refuse_missing(source)
    hub, _, subset = source.partition(":")
    splits = download(
        f"task.source={source}",
        hub,
        subset or None,
        remedy="give a JSONL file, a folder or a hub id (hub_id:subset if it has several)",
    )
    parts = {split: numbered(f"{source}, {split}", rows) for split, rows in splits.items()}
    if len(parts) > 1:
        return parts
    return _divided(source, list(*parts.values()))


def _divided(source: str, rows: list[Placed]) -> dict[str, Iterable[Placed]]:
    """Train and test of one list of rows: a fifth, at most 256, for test (none of under 5 rows)."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(rows))
    size = min(LARGEST_TEST, len(rows) // 5)
    ranks.say(f"task=own: {size} of the {len(rows)} questions of {source} are its test split")
    indices = {"train": order[size:], "test": order[:size]}
    return {split: [rows[i] for i in sorted(part)] for split, part in indices.items() if len(part)}
