"""The built-in reward functions: one float for a graded completion. The names in FUNCTIONS are the
keys of `rewards.weights`."""

import re
from dataclasses import dataclass

from . import tags as tag_scan


@dataclass(frozen=True)
class Graded:
    """A completion with the verdict of its grader."""

    text: str  # with the `<think>` that its prompt may have opened
    correct: bool
    version: str  # of the rewards: v1 | v1-correctness | v2 | strict


def correctness(graded: Graded) -> float:
    """1 if the grader accepts the answer, else 0."""
    return float(graded.correct)


def format(graded: Graded) -> float:
    """0.1 for the two blocks, 0.001 less for every character outside them, at least 0."""
    extra = tag_scan.extra_characters(graded.text)
    if extra is None or not _earns_bonus(graded):
        return 0.0
    return 0.1 * max(0.0, 1 - 0.01 * extra)


def tags(graded: Graded) -> float:
    """0.025 for each of the four tags that occurs exactly once."""
    if not _earns_bonus(graded):
        return 0.0
    return 0.025 * sum(graded.text.count(tag) == 1 for tag in tag_scan.TAGS)


def _earns_bonus(graded: Graded) -> bool:
    """Whether format and tags count at all: in the release for wrong answers only, in its MATH runs
    ("NF") never; in strict not with an empty block."""
    if graded.version == "strict":
        return re.search(r"<(think|answer)>\s*</\1>", graded.text) is None
    if graded.version == "v1":
        return not graded.correct
    return graded.version == "v2"


FUNCTIONS = {
    "correctness": correctness,
    "format": format,
    "tags": tags,
}
