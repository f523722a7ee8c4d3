"""Scores batches of completions for training and evaluation in bounded time.

Only math-verify (strict) needs child processes; everything else has bounded work and runs here,
10,000 completions per second.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from rewards import choice, functions, published, strict
from rewards.verifier import Pair, Verdict, Verifier

VERSIONS = ("v1", "v1-correctness", "v2", "strict")
KINDS = ("math", "choice")
MAX_KNOWN = 100_000  # remembered verdicts, about 30 MB
NAMES = ("correctness", "format", "tags")


class Scorer(AbstractContextManager):
    """Use it in a `with`, or close it. With workers=0, or a version other than strict, it starts no
    process, and an answer that only computer algebra can decide is wrong."""

    def __init__(
        self, version: str, *, workers: int, deadline_seconds: float, names: Iterable[str] = NAMES
    ) -> None:
        check("version", version, VERSIONS)
        self.names = tuple(names)
        for name in self.names:
            check("weights", name, reward_names())
        self.version = version
        self.timeouts = 0  # completions so far that scored 0 because of the deadline
        self._known: dict[Pair, Verdict] = {}
        self._verifier = None
        if version == "strict" and workers > 0:
            self._verifier = Verifier(workers, deadline_seconds)

    def score(
        self, completions: Sequence[str], answers: Sequence[str], kinds: Sequence[str]
    ) -> dict[str, list[float]]:
        """{name: one float per completion}, unweighted."""
        correct = self.grade(completions, answers, kinds)
        rows = list(zip(completions, answers, correct, strict=True))
        return {
            name: [getattr(functions, name)(*row, self.version) for row in rows]
            for name in self.names
        }

    def grade(
        self, completions: Sequence[str], answers: Sequence[str], kinds: Sequence[str]
    ) -> list[bool]:
        """Whether each completion is correct."""
        rows = zip(completions, answers, kinds, strict=True)
        decisions = [_decide(*row, self.version) for row in rows]
        self._compare({pair for pair in decisions if isinstance(pair, tuple)})
        verdicts = [self._known.get(decision, decision) for decision in decisions]
        self.timeouts += verdicts.count(None)
        return [verdict is True for verdict in verdicts]

    def _compare(self, pairs: set[Pair]) -> None:
        """Enter math-verify's verdicts in `_known`; a pair that was late is compared again."""
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        new = [pair for pair in pairs if self._known.get(pair) is None]
        if new and self._verifier is not None:
            self._known |= zip(new, self._verifier.ask(new), strict=True)

    def close(self) -> None:
        """End the child processes; a second call does nothing."""
        if self._verifier:
            self._verifier.close()
            self._verifier = None

    def __exit__(self, *_: object) -> None:
        self.close()


def reward_names() -> list[str]:
    """Every function of rewards/functions.py: the keys that config `weights` may have."""
    return [name for name, value in vars(functions).items() if callable(value)]


def _decide(completion: str, answer: str, kind: str, version: str) -> bool | Pair:
    check("kind", kind, KINDS)
    if kind == "choice":
        return choice.is_correct(completion, answer)
    if version == "strict":
        return strict.decide(completion, answer)
    return published.is_correct(completion, answer, version)


def check(key: str, value: str, valid: Iterable[str]) -> None:
    """ValueError naming the valid choices."""
    if value not in valid:
        raise ValueError(f"{key}={value}: unknown; one of {', '.join(valid)}")
