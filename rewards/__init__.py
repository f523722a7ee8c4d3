"""Rewards of training and grades of evaluation, from one definition: v1 (the release, Qwen) and v2
(the later head, Llama) are published, v1-correctness is the release on MATH, and strict is ours.
Completions are untrusted, so work is bounded."""

from collections.abc import Iterable, Sequence

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
    _check("version", version, VERSIONS)
    _check("kind", kind, KINDS)
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
    kind: str = "math",
    deadline_seconds: float = 0,
) -> list[bool]:
    """`grade` of many completions. deadline_seconds: no longer used."""
    return Scorer(version).grade(completions, answers, [kind] * len(completions))


def score(
    completions: Sequence[str], answers: Sequence[str], version: str = "v2", kind: str = "math"
) -> dict[str, list[float]]:
    """correctness, format and tags of every completion, unweighted; the trainer adds them up."""
    count = len(completions)
    return Scorer(version).score(completions, answers, [kind] * count, [""] * count)


class Scorer:
    """Scores batches of completions by one version. workers, deadline_seconds: no longer used."""

    timeouts = 0

    def __init__(self, version: str, *, workers: int = 0, deadline_seconds: float = 0) -> None:
        _check("version", version, VERSIONS)
        self.version = version

    def score(
        self,
        completions: Sequence[str],
        answers: Sequence[str],
        kinds: Sequence[str],
        prompts: Sequence[str],
    ) -> dict[str, list[float]]:
        """{name: one float per completion}, unweighted. prompts: they may open the first tag."""
        verdicts = self.grade(completions, answers, kinds)
        rows = [
            Graded(opened(prompt) + completion, verdict, self.version)
            for prompt, completion, verdict in zip(prompts, completions, verdicts, strict=True)
        ]
        return {name: list(map(function, rows)) for name, function in FUNCTIONS.items()}

    def grade(
        self, completions: Sequence[str], answers: Sequence[str], kinds: Sequence[str]
    ) -> list[bool]:
        """Whether each completion gives its gold answer."""
        return [
            grade(completion, answer, self.version, kind)
            for completion, answer, kind in zip(completions, answers, kinds, strict=True)
        ]

    def close(self) -> None:
        """Nothing to close."""


def _check(key: str, value: str, valid: Iterable[str]) -> None:
    if value not in valid:
        raise ValueError(f"{key}={value}: unknown; one of {', '.join(valid)}")
