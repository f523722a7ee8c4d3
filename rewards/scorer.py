"""Scores batches of completions for training and evaluation in bounded time.

v1, v2, choice and all exact steps of strict take linear time and run in this process, 20,000
completions per second; a process pool is slower. Comparisons that need computer algebra go to child
processes with a deadline for each; a late one scores 0 and counts in `timeouts`.
"""

from collections.abc import Iterable, Sequence
from types import TracebackType

from rewards import choice, functions, published, strict
from rewards.symbolic import Verifier

VERSIONS = ("v1", "v1-correctness", "v2", "strict")
KINDS = ("math", "choice")
MAX_KNOWN = 100_000  # remembered verdicts, about 30 MB
NAMES = ("correctness", "format", "tags")


class Scorer:
    """Create it before CUDA is used, and close it or use it in a `with`.

    With workers=0, or a version other than strict, no process starts, and an answer that the exact
    rules cannot decide is wrong.
    """

    def __init__(
        self,
        version: str,
        *,
        workers: int,
        deadline_seconds: float,
        names: Iterable[str] = NAMES,
    ) -> None:
        check("version", version, VERSIONS)
        self.names = tuple(names)
        for name in self.names:
            check("weights", name, reward_names())
        self.version = version
        self.timeouts = 0  # completions so far that scored 0 because of the deadline
        self._verifier = None
        self._known: dict[strict.Doubt, bool] = {}
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
        """Whether each completion's answer is right."""
        verdicts = [
            _decide(*row, self.version) for row in zip(completions, answers, kinds, strict=True)
        ]
        doubts = dict.fromkeys(v for v in verdicts if isinstance(v, strict.Doubt))
        settled = self._settle(list(doubts))
        final = [settled[v] if isinstance(v, strict.Doubt) else v for v in verdicts]
        self.timeouts += final.count(None)
        return [bool(verdict) for verdict in final]

    def _settle(self, doubts: list[strict.Doubt]) -> dict[strict.Doubt, bool | None]:
        """The verifier's verdict on each; a known one is reused, because rollouts repeat."""
        if self._verifier is None:
            return dict.fromkeys(doubts, False)
        new = [doubt for doubt in doubts if doubt not in self._known]
        settled = dict(zip(new, self._verifier.ask(new), strict=True))
        settled |= {doubt: self._known[doubt] for doubt in doubts if doubt in self._known}
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        self._known |= {doubt: verdict for doubt, verdict in settled.items() if verdict is not None}
        return settled

    def close(self) -> None:
        """End the worker processes."""
        if self._verifier:
            self._verifier.close()

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
