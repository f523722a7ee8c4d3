"""Rewards decide what is learned, grades decide what is claimed: one definition for both.

Versions: v1 (the release, Qwen) and v2 (the later head, Llama) are the published ones to the bit,
v1-correctness is the release on MATH, strict is ours. Kinds of answers: math, choice.
Completions are untrusted: nothing is evaluated, every step is linear in time, and the one that is
not (math-verify, for strict) runs in a process that is killed at its deadline.
"""

from collections.abc import Iterable, Sequence

from rewards import choice, functions, published
from rewards.tags import is_well_formed

VERSIONS = ("v1", "v1-correctness", "v2", "strict")
KINDS = ("math", "choice")
NAMES = ("correctness", "format", "tags")

__all__ = ["KINDS", "NAMES", "VERSIONS", "grade", "is_well_formed", "score"]


def grade(completion: str, answer: str, version: str = "v2", kind: str = "math") -> bool:
    """Whether the completion's answer is right."""
    check(version, kind)
    if kind == "choice":
        return choice.is_correct(completion, answer)
    return published.is_correct(completion, answer, version)


def score(
    completions: Sequence[str],
    answers: Sequence[str],
    version: str = "v2",
    kind: str = "math",
    names: Iterable[str] = NAMES,
) -> dict[str, list[float]]:
    """Every reward of every completion, unweighted: {name: one float per completion}."""
    correct = [grade(c, a, version, kind) for c, a in zip(completions, answers, strict=True)]
    return apply(completions, answers, correct, version, names)


def apply(
    completions: Sequence[str],
    answers: Sequence[str],
    correct: Sequence[bool],
    version: str,
    names: Iterable[str] = NAMES,
) -> dict[str, list[float]]:
    """The reward functions on graded completions."""
    rows = list(zip(completions, answers, correct, strict=True))
    return {name: [getattr(functions, name)(*row, version) for row in rows] for name in names}


def check(version: str, kind: str = "math") -> None:
    """ValueError naming the valid choices."""
    for key, value, valid in (("version", version, VERSIONS), ("kind", kind, KINDS)):
        if value not in valid:
            raise ValueError(f"{key}={value}: unknown; one of {', '.join(valid)}")
