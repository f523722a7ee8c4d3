"""Questions with gold answers: `load(name, split)` and the prompt the policy sees.

Departs from the published code: questions for validation are carved from train, so that no
checkpoint is chosen on the test set; a bad row is an error with its place, none is dropped.
"""

import os
import sys
from typing import TYPE_CHECKING

from pods.cli import UserError
from pods.tasks import chemistry, competition, gsm8k
from pods.tasks.prompts import encode_prompt, render_prompt, within_length
from pods.tasks.source import Source, read

if TYPE_CHECKING:
    from datasets import Dataset

SOURCES: dict[str, Source] = {
    source.name: source for source in (*gsm8k.SOURCES, *competition.SOURCES, *chemistry.SOURCES)
}
NAMES = (*SOURCES, "arithmetic")  # the last is generated, not read
SPLITS = ("train", "validation", "test")
VALIDATION_SEED = 42  # fixed: runs with different seeds must not train on each other's validation

__all__ = ["NAMES", "SPLITS", "encode_prompt", "load", "render_prompt", "within_length"]


def load(
    name: str,
    split: str,
    *,
    data_dir: str | None = None,
    legacy_gold: bool = False,
    validation_size: int = 256,
) -> "Dataset":
    """Every row of a task's split with the columns id, question, answer, kind.

    Rows come from `data_dir` (or PODS_DATA_DIR), else from the hub. UserError names file and line.
    """
    for key, value, valid in (("task", name, NAMES), ("split", split, SPLITS)):
        if value not in valid:
            raise UserError(f"{key}={value}: unknown; one of {', '.join(valid)}")
    if name == "arithmetic":
        from pods.tasks import arithmetic

        return _dataset([{**row, "kind": "math"} for row in arithmetic.rows(split)])
    source = SOURCES[name]
    if split != "test" and "train" not in source.splits:
        raise UserError(
            f"task={name}: has no {split} split, it is a test set; train on another task"
        )
    data_dir = data_dir or os.environ.get("PODS_DATA_DIR")
    if split == "test":
        return _dataset(read(source, split, data_dir, legacy_gold))
    return _carved(source, read(source, "train", data_dir, legacy_gold), split, validation_size)


def _carved(
    source: Source, rows: list[dict[str, str]], split: str, validation_size: int
) -> "Dataset":
    """The validation questions or the rest of train; of a small file at most a fifth is carved."""
    import numpy as np

    dataset = _dataset(rows)
    if source.shuffle_seed is not None:
        dataset = dataset.shuffle(seed=source.shuffle_seed)
    size = min(validation_size, len(rows) // 5)
    if size < validation_size:
        print(
            f"task={source.name}: validation_size={validation_size} is more than a fifth of the"
            f" {len(rows)} training questions; {size} are carved",
            file=sys.stderr,
        )
    if split == "validation" and size == 0:
        raise UserError(
            f"task={source.name} validation_size={validation_size}: leaves no validation questions"
            f" ({len(rows)} training questions); give at least 1 and 5 training questions for each"
        )
    order = np.random.default_rng(VALIDATION_SEED).permutation(len(rows))
    return dataset.select(sorted(order[:size] if split == "validation" else order[size:]))


def _dataset(rows: list[dict[str, str]]) -> "Dataset":
    from datasets import Dataset  # takes seconds: only when rows are wanted

    return Dataset.from_list(rows)
