"""The clock that the paper's claim is measured with.

`train_seconds` is the wall time of whole optimiser steps: generate + score + select + update, where
update is what remains of a step (forward, backward, optimiser and the trainer's own bookkeeping).
Loading, warm-up, checkpoints, evaluation and log writing are timed under their own names and never
counted. The published code plots the checkpoint's index instead (docs/paper.md).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pods import ranks

STEP_PHASES = ("generate", "score", "select", "update")
GIB = 2**30  # bytes


class Clock:
    """Seconds of a run by phase; monotonic, continued by `restore` after a resume.

    `peak`, where set, returns the GiB of device memory that were most in use since its last call.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, started: float | None = None
    ) -> None:
        self.now = now
        self.peak: Callable[[], float] | None = None
        self.step_peak: dict[str, float] = {}  # GiB, phases of the newest step
        self.started = now() if started is None else started  # of the process
        self.train_seconds = 0.0  # s, all finished steps of the run, earlier processes included
        self.before_step = 0.0  # s, train_seconds at the start of the newest finished step
        self.step: dict[str, float] = {}  # s, phases of the newest step
        self.outside: dict[str, float] = defaultdict(float)  # s, load, warmup, checkpoint, ...
        self._step_started: float | None = None

    def restore(self, train_seconds: float, outside: dict[str, float]) -> None:
        self.train_seconds = self.before_step = train_seconds
        for phase, seconds in outside.items():
            self.outside[phase] += seconds

    @property
    def wall_seconds(self) -> float:
        """Seconds since `started`, everything included."""
        return self.now() - self.started

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block: a phase of the step while one runs, else something outside of training."""
        start = self.now()
        try:
            yield
        finally:
            seconds = self.now() - start
            if name in STEP_PHASES:
                self.step[name] = self.step.get(name, 0.0) + seconds
                self._note_peak(name)
            else:
                self.outside[name] += seconds
                if self._step_started is not None:  # in the middle of a step: not part of it
                    self._step_started += seconds

    def start_step(self) -> None:
        self.step, self.step_peak = {}, {}
        if self.peak:
            self.peak()  # discards the peak since the last step
        self._step_started = self.now()

    def end_step(self) -> None:
        if self._step_started is None:
            raise RuntimeError("end_step without start_step")
        seconds = self.now() - self._step_started
        self.step["update"] = seconds - sum(self.step.values())
        self._note_peak("update")
        # A step of several ranks took as long as its slowest.
        seconds, self.step = max(ranks.gather([(seconds, self.step)]), key=lambda s: s[0])
        self.before_step = self.train_seconds
        self.train_seconds += seconds
        self._step_started = None

    def _note_peak(self, phase: str) -> None:
        if self.peak:
            self.step_peak[phase] = max(self.step_peak.get(phase, 0.0), self.peak())

    def passed_mark(self, every_seconds: float | None) -> bool:
        """Whether the newest step crossed a multiple of `every_seconds` of training.

        The grid is fixed, so a late step shifts nothing, and two marks in one step count once.
        """
        if every_seconds is None:
            return False
        return self.train_seconds // every_seconds > self.before_step // every_seconds


def peak_memory_reader() -> Callable[[], float] | None:
    """For `Clock.peak`: peak GiB on the CUDA device since the last call; None without a device."""
    import torch

    if not torch.cuda.is_available():
        return None

    def read() -> float:
        most = torch.cuda.max_memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
        return most

    return read
