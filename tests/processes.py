"""A command in a real process, forked so that its twelve seconds of imports are shared.

The child is a process like any other: it has its own pid, can be killed, exits with a code.
"""

import gc
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

# Imported here, before any fork, because importing is what takes the time.
from pods.engines import transformers  # noqa: F401
from pods.evaluation import run as evaluation  # noqa: F401
from pods.training import build, check, loop  # noqa: F401
from tests.conftest import ROOT


@dataclass
class Process:
    """A forked command; `wait` fills in how it ended (a negative returncode is a signal)."""

    pid: int
    folder: Path
    returncode: int | None = None
    stdout: str = ""
    stderr: str = ""

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
    folder: Path, *arguments: str, script: str | Path = "train.py",
    fault: Callable[[], None] | None = None, cwd: Path | None = None,
) -> Process:  # fmt: skip
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
