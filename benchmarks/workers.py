"""Calls in processes of their own, which end with this process, however it ends."""

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import TypeVar

from pods.config.errors import RunFailed

PRELOADED = ["pods.training.build", "pods.training.loop", "pods.evaluation.midrun"]
Argument = TypeVar("Argument")
Value = TypeVar("Value")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """A block in which no other process works in this folder so; one that does is waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".board.lock").open("a") as lock:  # freed by the kernel on a kill
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"output_dir={folder}: waiting for the board that trains there", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def results(
    function: Callable[[Argument], Value], tasks: list[Argument], jobs: int
) -> Iterator[tuple[Argument, Value]]:
    """Each task with its result, in the order of their ends, `jobs` at a time. At an error, and
    when the iterator is closed, all processes end."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    reader, writer = context.Pipe(duplex=False)  # only this process has the writer
    with ProcessPoolExecutor(jobs, context, end_with, (reader,), max_tasks_per_child=1) as pool:
        futures = {pool.submit(function, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise RunFailed(
                f"jobs={jobs}: a training was killed, perhaps for want of memory; "
                "set fewer jobs, or run the same command again"
            ) from error
        finally:
            writer.close()


def end_with(pipe: Connection) -> None:
    """Kill this process when the other end of the pipe is closed, as by the end of its process."""

    def watch() -> None:
        pipe.poll(None)
        os.kill(os.getpid(), signal.SIGKILL)  # a training resumes to the same bits

    Thread(target=watch, daemon=True).start()
