"""The built-in reward functions; a function's name is its key under `weights` in config/rewards/.

A function gets one completion, the gold answer, the grader's verdict and the version, and returns
one float. To add one, write it here, give it a weight in the YAML file and test it.
"""

from rewards import tags as tag_scan


def correctness(completion: str, answer: str, correct: bool, version: str) -> float:
    """1 if the grader accepts the answer, else 0."""
    return float(correct)


def format(completion: str, answer: str, correct: bool, version: str) -> float:
    """0.1 for the two blocks alone, 0.001 less for every character outside them, at least 0."""
    if not tag_scan.earn_bonus(completion, correct, version):
        return 0.0
    extra = tag_scan.extra_characters(completion)
    return 0.0 if extra is None else 0.1 * max(0.0, 1 - 0.01 * extra)


def tags(completion: str, answer: str, correct: bool, version: str) -> float:
    """0.025 for each of the four tags that occurs exactly once."""
    if not tag_scan.earn_bonus(completion, correct, version):
        return 0.0
    return 0.025 * tag_scan.tags_once(completion)
