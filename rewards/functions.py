"""The rewards: each function here is one, its name is its key in config/rewards/*.yaml `weights`.

A reward sees one completion, the gold answer, whether the grader calls it correct, and the version;
it returns one float. To add one: write the function, name it in the YAML's weights, test it.
"""

from rewards import tags as tag_scan

NO_BONUS_WHEN_CORRECT = "v1"  # the release paid for format only where the answer was wrong
CORRECTNESS_ONLY = "v1-correctness"  # the release's MATH runs ("NF")


def correctness(completion: str, answer: str, correct: bool, version: str) -> float:
    """1 if the grader accepts the answer, else 0."""
    return float(correct)


def format(completion: str, answer: str, correct: bool, version: str) -> float:
    """0.1 for the two blocks alone, 0.001 less for every character outside them, at least 0."""
    if version == CORRECTNESS_ONLY or (version == NO_BONUS_WHEN_CORRECT and correct):
        return 0.0
    extra = tag_scan.extra_characters(completion)
    return 0.0 if extra is None else 0.1 * max(0.0, 1 - 0.01 * extra)


def tags(completion: str, answer: str, correct: bool, version: str) -> float:
    """0.025 for each of the four tags that occurs exactly once."""
    if version == CORRECTNESS_ONLY or (version == NO_BONUS_WHEN_CORRECT and correct):
        return 0.0
    return 0.025 * tag_scan.tags_once(completion)
