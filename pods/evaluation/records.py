"""The record of a completion with its grades, and the files of records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pods.config.errors import RunFailed
from pods.files import write_atomic


class GradedCompletion(TypedDict):
    """One completion with its grades."""

    id: str  # of the question
    answer: str
    completion: str
    tokens: int
    clipped: bool
    well_formed: bool
    correct: dict[str, bool]  # by grader; one whose comparison passed its deadline is absent
    rewards: NotRequired[dict[str, float]]  # by reward function of the training


def save(write: Callable[[Path, Any], None], path: Path, content: Any) -> None:
    """write(path, content); a full or read-only disk is one line."""
    try:
        write(path, content)
    except OSError as error:
        raise RunFailed(
            f"{path}: {error.strerror}; make room there and run the same command again, finished "
            "repeats stay"
        ) from error


def write(path: Path, records: list[GradedCompletion]) -> None:
    """Replace a file of records, a line each. Raises RunFailed as `save`."""
    save(write_atomic, path, "".join(json.dumps(record) + "\n" for record in records))
