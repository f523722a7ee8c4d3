"""Questions with gold answers: `load(name, split)`.

Departs from the published code: validation questions are carved from train, so that no checkpoint
is chosen on the test set; a bad row is an error with its place, and no row is dropped.
"""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from pods import ranks
from pods.config import keys as config
from pods.config.command import CONFIG_DIR
from pods.config.errors import UserError
from pods.config.mistakes import validated
from pods.tasks import arithmetic, chemistry, gsm8k, math, own, test_sets
from pods.tasks.reading import read
from pods.tasks.task import Row, Task

if TYPE_CHECKING:
    from datasets import Dataset

TASKS: dict[str, Task] = {
    task.name: task
    for task in (gsm8k.TASK, math.TASK, *test_sets.TASKS, chemistry.TASK, arithmetic.TASK)
}
NAMES = (*TASKS, "own")
SPLITS = ("train", "validation", "test")
VALIDATION_SEED = 42  # fixed: runs with different seeds must not train on each other's validation


def problems(task: config.Task) -> Iterator[str]:
    """Every broken rule between the task's keys, one line each; reads no data."""
    if task.name not in NAMES:
        yield f"task={task.name}: unknown; one of {', '.join(NAMES)}"
    yield from own.problems(task)


def system_texts(task: config.Task) -> Mapping[str, str]:
    """task.style -> the system text that the task brings itself."""
    return own.SYSTEM[str(task.kind)] if task.name == "own" else TASKS[task.name].system


def load(name: str, split: str, *, data_dir: str | None = None, **keys: Any) -> "Dataset":
    """Every row of a task's split, see `load_for`. keys: of config/task, whose defaults hold."""
    shared = yaml.safe_load((CONFIG_DIR / "task" / "_shared.yaml").read_text())
    values = {**shared, "name": name, **keys}
    _refuse(config.Task.model_construct(**values))
    return load_for(validated(config.Task, values, "task."), split, data_dir)


def _refuse(task: config.Task) -> None:
    for problem in problems(task):
        raise UserError(problem)


def load_for(task: config.Task, split: str, data_dir: str | None = None) -> "Dataset":
    """Every row of a split: id, question, answer (the gold one), kind, and the data set's columns.

    A column of the data set that is called like one of ours, or `prompt`, is left out. The others
    are unchanged, except that numbers of mixed types become floats and missing values None. Rows
    come from `data_dir` (or PODS_DATA_DIR), else from the hub; those of task=own from its source.
    Raises UserError naming the key, or file and line.
    """
    _refuse(task)
    if split not in SPLITS:
        raise UserError(f"split={split}: unknown; one of {', '.join(SPLITS)}")
    found = own.define(task, split) if task.name == "own" else TASKS[task.name]
    if split != "test" and "train" not in found.splits:
        line = f"{task.name}: has no {split} split, it is a test set; name another task"
        raise UserError(line, key="task")
    carved = split != "test" and "validation" not in found.splits
    data_dir = data_dir or os.environ.get("PODS_DATA_DIR")
    dataset = _dataset(read(found, "train" if carved else split, data_dir, task.legacy_gold))
    return _carved(found, dataset, split, task.validation_size) if carved else dataset


def _carved(task: Task, dataset: "Dataset", split: str, wanted: int) -> "Dataset":
    """The validation questions or the rest of train; of a small file at most a fifth is carved."""
    if task.shuffle_seed is not None:
        dataset = dataset.shuffle(seed=task.shuffle_seed)
    count, size = len(dataset), min(wanted, len(dataset) // 5)
    if size < wanted:
        ranks.say(
            f"task={task.name}: validation_size={wanted} is more than a fifth of the {count}"
            f" training questions; {size} are carved"
        )
    if split == "validation" and size == 0:
        raise UserError(
            f"{task.name} validation_size={wanted}: leaves no validation questions ({count}"
            " training questions); give at least 1 and 5 training questions for each",
            key="task",
        )
    order = np.random.default_rng(VALIDATION_SEED).permutation(count)
    return dataset.select(sorted(order[:size] if split == "validation" else order[size:]))


def _dataset(rows: list[Row]) -> "Dataset":
    from datasets import Dataset, concatenate_datasets  # takes seconds: only when rows are wanted

    columns = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = {name: [row.get(name) for row in rows]}
        try:
            columns.append(Dataset.from_dict(values, on_mixed_types="use_json"))
        except Exception as error:  # Arrow's, of a dozen types
            raise UserError(
                f"column {name!r}: cannot be stored ({type(error).__name__}: {error}); change or "
                "remove it"
            ) from None
    return concatenate_datasets(columns, axis=1)
