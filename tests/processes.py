"""A command in a real process, forked so that its twelve seconds of imports are shared.

The child is a process like any other: it has its own pid, can be killed, exits with a code. The
commands that it starts are forked too. Fresh interpreters: tests/test_commands.py, in CI.
"""

import gc
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

# Imported here, before any fork, because importing is what takes the time.
from trl import GRPOTrainer  # noqa: F401

from pods import trainer  # noqa: F401
from pods.engines import choose, transformers  # noqa: F401
from pods.evaluation import run as evaluation  # noqa: F401
from pods.runs import folder as runs  # noqa: F401
from pods.tasks import prompts  # noqa: F401
from pods.training import (
    check,  # noqa: F401
    loop,  # noqa: F401
)

ROOT = Path(__file__).resolve().parents[1]


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

    def wait(self, timeout: float = 540.0) -> "Process":
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
    script: str | Path = "train.py",
    fault: Callable[[], None] | None = None,
    cwd: Path | None = None,
) -> Process:
    """Fork a script with these arguments; `fault` is called in the child before it starts.

    What it prints lands in folder/stdout and folder/stderr; it works in `cwd`, else in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Process(pid, folder)
    code = 70
    try:
        gc.freeze()  # what was imported is not searched for garbage again
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.chdir(cwd or folder)
        sys.argv = [str(ROOT / script), *arguments]
        AcceleratorState._reset_state(reset_partial_state=True)  # a new process has none...
        GlobalHydra.instance().clear()
        HydraConfig.instance().cfg = None  # ... nor the config of the command that starts it
        subprocess.run = partial(run_inside, subprocess.run)
        if fault:
            fault()
        runpy.run_path(sys.argv[0], run_name="__main__")
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


def run(folder: Path, *arguments: str, **settings: Any) -> Process:
    """Fork a script and wait for its end."""
    return start(folder, *arguments, **settings).wait()


def wait_for(condition: Callable[[], object], processes: list[Process]) -> None:
    """Wait until the condition holds, which is before any of the processes ends."""
    deadline = time.monotonic() + 500
    while not condition():
        assert not any(process.poll() for process in processes), [p.stderr for p in processes]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fresh(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter, as a user would."""
    command = [sys.executable, str(ROOT / script), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=540)


def run_inside(
    outside: Callable, command: list[str], **settings: Any
) -> subprocess.CompletedProcess:
    """subprocess.run of a forked command: forks this repository's commands, starts any other."""
    if command[0] != sys.executable or not command[1].endswith(".py"):
        return outside(command, **settings)
    folder = Path(tempfile.mkdtemp())
    child = start(folder, *command[2:], script=command[1], cwd=settings.get("cwd", Path.cwd()))
    try:
        child.wait()
    finally:
        if not child.poll():
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        shutil.rmtree(folder)
    if not settings.get("capture_output"):
        print(child.stdout, end="")
        print(child.stderr, end="", file=sys.stderr)
    return subprocess.CompletedProcess(command, child.returncode, child.stdout, child.stderr)
