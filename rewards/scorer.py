"""Scores batches of completions for training and evaluation in bounded time.

v1, v2, choice and all exact steps of strict have bounded work and run in this process, 10,000
completions per second; a process pool is slower. Comparisons that need computer algebra go to child
processes with a deadline for each; a late one scores 0 and counts in `timeouts`.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from rewards import choice, functions, published, strict
from rewards.symbolic import Verdict, Verifier

VERSIONS = ("v1", "v1-correctness", "v2", "strict")
KINDS = ("math", "choice")
MAX_KNOWN = 100_000  # remembered verdicts, about 30 MB
NAMES = ("correctness", "format", "tags")


class Scorer(AbstractContextManager):
    """Create it before CUDA is used, and close it or use it in a `with`.

    With workers=0, or a version other than strict, no process starts, and an answer that the exact
    rules cannot decide is wrong.
    """

    def __init__(
        self, version: str, *, workers: int, deadline_seconds: float, names: Iterable[str] = NAMES
    ) -> None:
        check("version", version, VERSIONS)
        self.names = tuple(names)
        for name in self.names:
            check("weights", name, reward_names())
        self.version = version
        self.timeouts = 0  # completions so far that scored 0 because of the deadline
        self._known: dict[strict.Doubt, Verdict] = {}
        symbolic = version == "strict" and workers > 0
        self._verifier = Verifier(workers, deadline_seconds) if symbolic else None

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
        """Whether each completion's answer is right."""
        rows = zip(completions, answers, kinds, strict=True)
        verdicts = [_decide(*row, self.version) for row in rows]
        settled = self._settle([v for v in verdicts if isinstance(v, strict.Doubt)])
        final = [settled.get(verdict, verdict) for verdict in verdicts]
        self.timeouts += final.count(None)
        return [bool(verdict) for verdict in final]

    def _settle(self, doubts: list[strict.Doubt]) -> dict[strict.Doubt, Verdict]:
        """The verifier's verdict on each; a known one is reused, because rollouts repeat."""
        if self._verifier is None:
            return dict.fromkeys(doubts, False)
        settled = {doubt: self._known.get(doubt) for doubt in doubts}
        new = [doubt for doubt, verdict in settled.items() if verdict is None]
        settled |= zip(new, self._verifier.ask(new), strict=True)
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        self._known |= settled
        return settled

    def close(self) -> None:
        """End the worker processes."""
        if self._verifier:
            self._verifier.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def reward_names() -> list[str]:
    """Every function of rewards/functions.py: the keys that config `weights` may have."""
    return [name for name, value in vars(functions).items() if callable(value)]


def _decide(completion: str, answer: str, kind: str, version: str) -> bool | strict.Doubt:
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
