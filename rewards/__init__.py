"""Rewards of training and grades of evaluation, from one definition: v1 (the release, Qwen) and v2
(the later head, Llama) are published, v1-correctness is the release on MATH, and strict is ours.
Completions are untrusted, so work is bounded."""

import atexit
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache

import yaml

from pods.config.paths import CONFIG_DIR

from . import published, strict
from .functions import FUNCTIONS, Graded
from .reading import gold_type
from .tags import is_well_formed, opened  # noqa: F401
from .verifier import Question, Verdict, Verifier

DEADLINE_SECONDS = yaml.safe_load((CONFIG_DIR / "train.yaml").read_text())["rewards"][
    "deadline_seconds"
]
VERSIONS = ("v1", "v1-correctness", "v2", "strict")


def grade(completion: str, answer: str, version: str = "v2", kind: str = "math") -> Verdict:
    """Whether a completion gives the gold answer; None if a comparison by strict passed its
    deadline, which says nothing about the answer. kind: math, or choice for a letter.

    Raises ValueError for an unknown version or kind.
    """
    return _scorer(version).grade([completion], [answer], [kind])[0]


def grades(
    completions: Sequence[str],
    answers: Sequence[str],
    version: str = "v2",
    kind: str = "math",
    deadline_seconds: float = DEADLINE_SECONDS,
) -> list[Verdict]:
    """`grade` of many completions, several comparisons at a time; a line on stderr counts those
    without a verdict. deadline_seconds: processor time of a comparison."""
    scorer = _scorer(version, deadline_seconds)
    verdicts = scorer.grade(completions, answers, [kind] * len(completions))
    missing = verdicts.count(None)
    if missing:
        print(
            f"rewards=strict: {missing} of {len(verdicts)} completions without a verdict: their "
            f"comparison took more than {deadline_seconds:g} s of processor time; "
            "raise deadline_seconds",
            file=sys.stderr,
        )
    return verdicts


def score(
    completions: Sequence[str], answers: Sequence[str], version: str = "v2", kind: str = "math"
) -> dict[str, list[float]]:
    """correctness, format and tags of every completion, unweighted; the trainer adds them up."""
    count = len(completions)
    return _scorer(version).score(completions, answers, [kind] * count, [""] * count)


class Scorer:
    """Scores batches of completions until it is closed. With workers=0, or a version other than
    strict, it starts no process, and an answer that only computer algebra can decide is wrong."""

    def __init__(self, version: str, *, workers: int, deadline_seconds: float) -> None:
        """workers: comparisons by math-verify at a time, each of at most deadline_seconds of the
        processor."""
        _check("version", version, VERSIONS)
        self.version = version
        self.timeouts = 0  # completions so far without a verdict because of the deadline
        self._verifier = Verifier(workers, deadline_seconds)

    def score(
        self,
        completions: Sequence[str],
        answers: Sequence[str],
        kinds: Sequence[str],
        prompts: Sequence[str],
    ) -> dict[str, list[float]]:
        """{name: one float per completion}, unweighted; without a verdict correctness is 0.

        prompts: they may open the first tag.
        """
        verdicts = self.grade(completions, answers, kinds)
        rows = [
            Graded(opened(prompt) + completion, bool(verdict), self.version)
            for prompt, completion, verdict in zip(prompts, completions, verdicts, strict=True)
        ]
        return {name: list(map(function, rows)) for name, function in FUNCTIONS.items()}

    def grade(
        self, completions: Sequence[str], answers: Sequence[str], kinds: Sequence[str]
    ) -> list[Verdict]:
        """Whether each completion gives its gold answer; None: a comparison passed its deadline."""
        decisions = list(map(self._decide, completions, answers, kinds))
        # Rollouts of one prompt often agree: each question is asked once.
        questions = [d for d in dict.fromkeys(decisions) if isinstance(d, tuple)]
        answered: dict = dict(zip(questions, self._verifier.ask(questions), strict=True))
        grades = [answered.get(d, d) for d in decisions]
        self.timeouts += grades.count(None)
        return grades

    def _decide(self, completion: str, answer: str, kind: str) -> bool | Question:
        """The verdict, or the question that only computer algebra can answer."""
        _check("kind", kind, ("math", "choice"))
        if kind == "choice":
            answer = answer.upper()  # nobody can choose what is no letter
            return gold_type(answer) == "letter" and strict.decide(completion, answer)
        if self.version == "strict":
            return strict.decide(completion, answer)
        return published.is_correct(completion, answer, self.version)

    def close(self) -> None:
        """End the child processes; a second call does nothing."""
        self._verifier.close()


def _check(key: str, value: str, valid: Iterable[str]) -> None:
    if value not in valid:
        raise ValueError(f"{key}={value}: unknown; one of {', '.join(valid)}")


@cache
def _scorer(version: str, deadline_seconds: float = DEADLINE_SECONDS) -> Scorer:
    """One scorer per version and deadline."""
    scorer = Scorer(version, workers=4, deadline_seconds=deadline_seconds)
    atexit.register(scorer.close)
    return scorer


os.register_at_fork(after_in_child=_scorer.cache_clear)  # two processes must not share its pipes
