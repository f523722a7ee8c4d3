"""math-verify for untrusted text: a server without CUDA or torch forks a child for each comparison.

The deadline is time of the processor that the child used, so that a verdict does not depend on what
else the machine does. The kernel's timers end a late child, even if the trainer was killed.
"""

import contextlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from pathlib import Path
from subprocess import PIPE, Popen

MEMORY = 2 * 2**30  # bytes of address space of a child; a comparison that needs more is not equal
WALL_SECONDS = 60.0  # for a child that waits without using the processor, for memory or a disk
Question = tuple  # the entries of the answer, of the gold answer, and whether in order
DIGITS = 300  # math-verify takes less than 10^-15 for 0 unless told otherwise
Verdict = bool | None  # None: the deadline passed, which says nothing about the two


class Verifier:
    """Answers questions with math-verify, `workers` at a time, each in at most
    `deadline_seconds` of processor time."""

    def __init__(self, workers: int, deadline_seconds: float) -> None:
        self._workers = workers
        self._code = f"from rewards.verifier import serve; serve({workers}, {deadline_seconds})"
        self._server: Popen | None = None  # started by the first question: sympy takes a second

    def ask(self, questions: Sequence[Question]) -> list[Verdict]:
        """One verdict per question, in order; False without workers. RuntimeError if the server
        ends twice in a row."""
        if not (questions and self._workers):
            return [False] * len(questions)
        for _ in range(2):
            if self._server is None:
                self._server = Popen(
                    [sys.executable, "-c", self._code],
                    cwd=Path(__file__).resolve().parents[1],  # python -c imports from there
                    stdin=PIPE,
                    stdout=PIPE,
                    text=True,
                    start_new_session=True,
                )
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(questions), file=self._server.stdin, flush=True)
            if reply := self._server.stdout.readline():
                return json.loads(reply)
            self.close()
        raise RuntimeError("rewards=strict: the process of math-verify ended; its error is above")

    def close(self) -> None:
        """End the server and its children, which are one process group."""
        if self._server:
            with contextlib.suppress(OSError), self._server:  # closes the pipes and waits
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server = None


def serve(workers: int, deadline_seconds: float) -> None:
    """The server's loop: a line of questions in, a line of verdicts out, until the trainer ends."""
    replies = sys.stdout
    sys.stdout = sys.stderr  # a parser that prints must not spoil the replies
    logging.disable()  # parsers warn about every text that is not mathematics
    _same(
        "\\frac{\\sqrt{3}}{2}(x+1)(x+2)", "\\pi x^2"
    )  # parsers and sympy build tables on first use
    for line in sys.stdin:
        questions = json.loads(line)
        verdicts = []
        for start in range(0, len(questions), workers):
            batch = questions[start : start + workers]
            verdicts += map(_verdict, [_fork(question, deadline_seconds) for question in batch])
        print(json.dumps(verdicts), file=replies, flush=True)


def _fork(question: Question, deadline_seconds: float) -> int:
    """The pid of a child that ends with code 0 if the two are equal; SIGPROF ends one that computes
    too long, SIGALRM one that waits too long."""
    pid = os.fork()
    if pid:
        return pid
    differs = True
    try:
        signal.setitimer(signal.ITIMER_PROF, deadline_seconds)  # time of the processor
        signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
        with contextlib.suppress(ValueError, OSError):  # not every system has this limit
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        differs = not equal(*question)
    finally:
        os._exit(differs)


def _verdict(child: int) -> Verdict:
    """Wait for a child and read its verdict from how it ended."""
    _, status = os.waitpid(child, 0)
    return {0: True, -signal.SIGPROF: None, -signal.SIGALRM: None}.get(
        os.waitstatus_to_exitcode(status), False
    )


def equal(answers: Sequence[str], golds: Sequence[str], ordered: bool) -> bool:
    """Whether the entries are equal, one by one or in some order. Called only in a child."""
    orders = [answers] if ordered else permutations(answers)
    return any(all(map(_same, order, golds)) for order in orders)


@cache
def _same(answer: str, gold: str) -> bool:
    """Whether math-verify finds the two equal, to DIGITS."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    form = NormalizationConfig(units=False, malformed_operators=True, nits=True)  # 2t keeps its t
    config = [LatexExtractionConfig(normalization_config=form)]  # no numbers out of broken LaTeX
    try:
        readings = [parse(f"${text}$", config, parsing_timeout=None) for text in (gold, answer)]
        return answer == gold or bool(
            verify(*readings, float_rounding=DIGITS, numeric_precision=DIGITS, timeout_seconds=None)
        )
    except Exception:  # sympy and its parsers raise many types
        return False
