"""A command in a real process, forked so that its twelve seconds of imports are shared.

The child is a process like any other: it has its own pid, can be killed, exits with a code. The
first test of each command still starts a fresh interpreter (tests/test_commands.py).
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from accelerate.state import AcceleratorState

# Imported here, before any fork, because importing is what takes the time.
import train
from pods import loop, prompts, runs, trainer  # noqa: F401


@dataclass
class Process:
    """A forked command; `wait` fills in how it ended (a negative returncode is a signal)."""

    pid: int
    folder: Path
    returncode: int | None = None
    stdout: str = field(default="")
    stderr: str = field(default="")

    def poll(self) -> bool:
        """Whether it has ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                self.stdout = (self.folder / "stdout").read_text()
                self.stderr = (self.folder / "stderr").read_text()
        return self.returncode is not None

    def wait(self, timeout: float = 240.0) -> "Process":
        deadline = time.monotonic() + timeout
        while not self.poll():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                raise TimeoutError(f"still running after {timeout} s: {self.folder}")
            time.sleep(0.02)
        return self


def start(
    folder: Path,
    *arguments: str,
    main: Callable[[], None] = train.main,
    fault: Callable[[], None] | None = None,
    cwd: Path | None = None,
) -> Process:
    """Fork a command with these arguments; `fault` is called in the child before it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Process(pid, folder)
    code = 70
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        os.chdir(cwd or folder)
        sys.argv = ["train.py", *arguments]
        AcceleratorState._reset_state(reset_partial_state=True)  # a new process has none
        if fault:
            fault()
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(folder: Path, *arguments: str, **settings: object) -> Process:
    """Fork a command and wait for its end."""
    return start(folder, *arguments, **settings).wait()
