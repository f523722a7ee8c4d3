"""A command in a real process, forked so that its twelve seconds of imports are shared."""

import faulthandler
import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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

SMALL = [  # a short run of two prompts a step, whose end and checkpoints go by steps
    "run=r",
    "prompts_per_step=2",
    "rollouts_per_prompt=8",
    "kept_per_prompt=4",
    "micro_batch_size=2",
    "sampling.max_completion_length=8",
    "budget.train_seconds=null",
    "checkpoint.every_seconds=null",
    "evaluation.every_seconds=null",
    "ledger_texts=all",
]


class Process(multiprocessing.get_context("fork").Process):
    """A script with these arguments, which works in `cwd`, else in the folder, and prints to
    folder/stdout and folder/stderr. `fault` is called in the process before it starts."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        script: str | Path = "train.py",
        fault: Callable[[], None] | None = None,
        cwd: Path | None = None,
    ) -> None:
        super().__init__()
        self.folder, self.fault, self.cwd = folder, fault, cwd or folder
        self.argv = [str(ROOT / script), *arguments]
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    def run(self) -> None:
        gc.freeze()  # what was imported is not searched for garbage again
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        faulthandler.enable()  # on the new stderr; `end` asks for the stacks
        os.chdir(self.cwd)
        sys.argv = self.argv
        AcceleratorState._reset_state(reset_partial_state=True)  # a new process has none...
        GlobalHydra.instance().clear()
        HydraConfig.instance().cfg = None  # ... nor the config of the command that starts it
        if self.fault:
            self.fault()
        runpy.run_path(sys.argv[0], run_name="__main__")

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def end(self, timeout: float = 540.0) -> int:
        """Its exit code, when it has ended; a negative one is a signal. A TimeoutError has its
        stderr and the stacks of its threads."""
        self.join(timeout)
        if self.exitcode is None:
            os.kill(self.pid, signal.SIGABRT)
            self.join(10)
            self.kill()
            raise TimeoutError(f"still running after {timeout} s: {self.folder}\n{self.stderr}")
        return self.exitcode


def run(folder: Path, *arguments: str, code: int = 0, **settings: Any) -> Process:
    """The process when it has ended, with this exit code."""
    process = Process(folder, *arguments, **settings)
    assert process.end() == code, process.stderr
    return process


def instead_of_run(
    folder: Path, run: Callable, command: list[str], cwd: Path | None = None, **settings: Any
) -> subprocess.CompletedProcess[str]:
    """`run` is subprocess.run; of a script in a new interpreter there is a fork, which has the
    imports of this process."""
    if command[0] != sys.executable:
        return run(command, cwd=cwd, **settings)
    _, script, *arguments = command
    number = len([*folder.glob("forked-*")])
    process = Process(folder / f"forked-{number}", *arguments, script=script, cwd=cwd)
    code = process.end()
    return subprocess.CompletedProcess(command, code, process.stdout, process.stderr)


def wait_for(condition: Callable[[], object], processes: list[Process]) -> None:
    """Wait until the condition holds, which is before any of the processes ends."""
    deadline = time.monotonic() + 500
    while not condition():
        assert all(process.is_alive() for process in processes), [p.stderr for p in processes]
        assert time.monotonic() < deadline
        time.sleep(0.05)
