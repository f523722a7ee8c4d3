"""The record of a completion with its grades, and the files of records."""

import json
from pathlib import Path
from typing import NotRequired, TypedDict

from pods.files import write_atomic


class GradedCompletion(TypedDict):
    """One completion with its grades."""

    id: str  # of the question
    answer: str
    completion: str
    tokens: int
    clipped: bool
    well_formed: bool
    correct: dict[str, bool]  # by grader
    rewards: NotRequired[dict[str, float]]  # by reward function of the training


def write(path: Path, records: list[GradedCompletion]) -> None:
    """Replace a file of records, a line each. Raises OSError."""
    write_atomic(path, "".join(json.dumps(record) + "\n" for record in records))
