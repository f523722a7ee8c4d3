"""math-verify in child processes, killed at a deadline.

Computer algebra on untrusted text can run forever or fill the memory, so it never runs in the
trainer. The server is a fresh interpreter without CUDA, torch or the caller's main module. It forks
a child for each comparison, which the kernel kills at the deadline; math-verify stays loaded in the
server.
"""

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rewards.strict import Doubt

CHILD_MEMORY = 4 * 2**30  # bytes of address space; a child that needs more fails: not equal
START_SECONDS = 60.0  # loading math-verify takes 1-3 s; on a busy machine much longer
SLACK_SECONDS = 10.0  # after the deadlines of a whole batch, before the server is replaced

WARM_UP = (
    ("(x+1)(x+2)", "x^2+3x+2"),
    ("\\frac{\\sqrt{3}}{2}", "\\sqrt{3}/2"),
    ("x \\in [1,2] \\cup (3,\\infty)", "[1,2] \\cup (3,\\infty)"),
    ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\{1, 2\\pi\\}"),
)

Verdict = bool | None  # None: the deadline passed


class Verifier(contextlib.AbstractContextManager):
    """Decides doubts with math-verify: one server process, `workers` children at a time."""

    def __init__(self, workers: int, deadline_seconds: float) -> None:
        self.workers, self.deadline_seconds = workers, deadline_seconds
        self._server: subprocess.Popen | None = None
        self._start()

    def ask(self, doubts: Sequence[Doubt]) -> list[Verdict]:
        """One verdict per doubt, in order; None where the deadline passed."""
        if not doubts:
            return []
        pairs = [[doubt.given, doubt.gold] for doubt in doubts]
        patience = START_SECONDS + SLACK_SECONDS + self.deadline_seconds * len(doubts)
        reply = self._exchange(json.dumps(pairs), patience)
        return [None] * len(doubts) if reply is None else json.loads(reply)

    def close(self) -> None:
        """End the server and its children."""
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(OSError), server:  # closes the pipes and waits
                os.killpg(server.pid, signal.SIGKILL)  # a separate session: the children too

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        code = f"from rewards.symbolic import serve; serve({self.workers}, {self.deadline_seconds})"
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._server = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # parsers warn about every text that is not mathematics
            env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )

    def _exchange(self, line: str, patience: float) -> bytes | None:
        """The server's answer to one line; None if it died or hangs (a new one comes next)."""
        if self._server is None or self._server.poll() is not None:
            self.close()
            self._start()
        with contextlib.suppress(OSError):
            self._server.stdin.write(line.encode() + b"\n")
            self._server.stdin.flush()
            readable = select.select([self._server.stdout], [], [], patience)[0]
            if readable and (reply := self._server.stdout.readline()):
                return reply
        self.close()
        return None


def serve(workers: int, deadline_seconds: float) -> None:
    """The server's loop: a line of pairs in, a line of verdicts out, until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries must not reach the pipe
    import math_verify  # noqa: F401  # loaded once, before the first fork

    for text, other in WARM_UP:  # parsers and sympy build their tables on first use
        equal(text, other)
    for line in sys.stdin:
        verdicts = _verdicts(json.loads(line), workers, deadline_seconds)
        answers.write(json.dumps(verdicts).encode() + b"\n")


def _verdicts(pairs: list[list[str]], workers: int, deadline_seconds: float) -> list[Verdict]:
    verdicts: list[Verdict] = [None] * len(pairs)
    waiting = list(enumerate(pairs))[::-1]
    running: dict[int, int] = {}  # pid -> index
    while waiting or running:
        if waiting and len(running) < workers:
            index, pair = waiting.pop()
            running[_fork(pair, deadline_seconds)] = index
        else:
            pid, status = os.wait()
            code = os.waitstatus_to_exitcode(status)
            verdicts[running.pop(pid)] = None if code == -signal.SIGALRM else code == 0
    return verdicts


def _fork(pair: list[str], deadline_seconds: float) -> int:
    """The pid of a child that ends with 0 if the two are equal, else 1; SIGALRM if it is late."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, whatever code runs
        signal.setitimer(signal.ITIMER_REAL, deadline_seconds)
        with contextlib.suppress(ValueError, OSError):  # not every system has it
            resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY, CHILD_MEMORY))
        code = int(not equal(*pair))
    finally:
        os._exit(code)


def equal(given: str, gold: str) -> bool:
    """Whether math-verify finds the two equal; called only in the server and its children."""
    from math_verify import parse, verify

    try:
        readings = [parse(f"${text}$", parsing_timeout=None) for text in (gold, given)]
        return all(readings) and bool(verify(*readings, timeout_seconds=None))
    except Exception:  # sympy and its parsers raise many types
        return False
