"""The built-in reward functions: one float for a completion, its gold answer, the grader's verdict
and the version. A function's name is its key under `weights` in config/rewards/."""

from . import tags as tag_scan


def correctness(completion: str, answer: str, correct: bool, version: str) -> float:
    """1 if the grader accepts the answer, else 0."""
    return float(correct)


def format(completion: str, answer: str, correct: bool, version: str) -> float:
    """0.1 for the two blocks, 0.001 less for every character outside them, at least 0."""
    extra = tag_scan.extra_characters(completion)
    if extra is None or not tag_scan.earn_bonus(completion, correct, version):
        return 0.0
    return 0.1 * max(0.0, 1 - 0.01 * extra)


def tags(completion: str, answer: str, correct: bool, version: str) -> float:
    """0.025 for each of the four tags that occurs exactly once."""
    earned = tag_scan.earn_bonus(completion, correct, version)
    return 0.025 * sum(completion.count(tag) == 1 for tag in tag_scan.TAGS) if earned else 0.0
