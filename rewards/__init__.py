"""Rewards of training and grades of evaluation, from one definition: v1 (the release, Qwen) and v2
(the later head, Llama) are published, v1-correctness is the release on MATH, and strict is ours.
Completions are untrusted, so work is bounded."""

from collections.abc import Sequence

from . import published, strict
from .functions import FUNCTIONS, Graded
from .reading import gold_type
from .tags import is_well_formed, opened  # noqa: F401

VERSIONS = ("v1", "v1-correctness", "v2", "strict")
KINDS = ("math", "choice")


def grade(completion: str, answer: str, version: str = "v2", kind: str = "math") -> bool:
    """Whether a completion gives the gold answer. kind: math, or choice for a letter.

    Raises ValueError for an unknown version or kind.
    """
    for key, value, valid in (("version", version, VERSIONS), ("kind", kind, KINDS)):
        if value not in valid:
            raise ValueError(f"{key}={value}: unknown; one of {', '.join(valid)}")
    if kind == "choice":
        answer = answer.upper()  # nobody can choose what is no letter
        return gold_type(answer) == "letter" and strict.decide(completion, answer)
    if version == "strict":
        return strict.decide(completion, answer)
    return published.is_correct(completion, answer, version)


def grades(
    completions: Sequence[str],
    answers: Sequence[str],
    version: str = "v2",
    kind: str | Sequence[str] = "math",
) -> list[bool]:
    """`grade` of many completions. kind: of all, or one for each."""
    kinds = [kind] * len(completions) if isinstance(kind, str) else kind
    rows = zip(completions, answers, kinds, strict=True)
    return [grade(completion, answer, version, kind) for completion, answer, kind in rows]


def score(
    completions: Sequence[str],
    answers: Sequence[str],
    version: str = "v2",
    kind: str | Sequence[str] = "math",
    prompts: Sequence[str] | None = None,
) -> dict[str, list[float]]:
    """correctness, format and tags of every completion, unweighted; the trainer adds them up.

    prompts: they may open the first tag.
    """
    verdicts = grades(completions, answers, version, kind)
    starts = map(opened, prompts or [""] * len(verdicts))
    rows = [
        Graded(start + completion, verdict, version)
        for start, completion, verdict in zip(starts, completions, verdicts, strict=True)
    ]
    return {name: list(map(function, rows)) for name, function in FUNCTIONS.items()}
