"""The clock that the paper's claim is measured with.

`train_seconds` is the wall time of whole optimiser steps: generate + score + select, and update,
the rest of a step. Loading, checkpoints, evaluation and logs are timed apart and never counted.
With a price list a step counts as the seconds that its rollouts would take on that machine, so that
a run ends at the same step with the same seconds on any machine, however busy.
"""

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from pods import ranks
from pods.config.keys import Prices

TICK = 0.1  # s between two looks at the time while a run is watched for stops
STEP_PHASES = ("generate", "score", "select", "update")
ByPhase = dict[str, float]  # seconds, or GiB


@dataclass
class Clock:
    """Seconds of a run by phase; monotonic, continued by `restore` after a resume."""

    now: Callable[[], float] = time.monotonic
    peak: Callable[[], float | None] = lambda: None  # GiB of the device most in use since last call
    train_seconds: float = 0.0  # all finished steps of the run, earlier processes included
    before_step: float = 0.0  # train_seconds at the start of the newest finished step
    step: ByPhase = field(default_factory=dict)  # s, of the newest step
    step_peak: ByPhase = field(default_factory=dict)  # GiB, of the newest step
    outside: ByPhase = field(default_factory=lambda: defaultdict(float))  # s, load, ...
    step_started: float = 0.0
    stopped: float = 0.0  # s for which the process was stopped: Ctrl-Z, SIGSTOP, a suspended job
    looked: float = 0.0  # when a thread looked at the time last
    longest_gap: float = 0.0  # s between two looks, since the phase began
    running: str = "update"  # current phase; time outside the other phases counts as update

    def __post_init__(self) -> None:
        self.started = self.now()

    def restore(self, train_seconds: float, outside: ByPhase) -> None:
        """Go on from a checkpoint: its training seconds, and those outside of training by phase.

        What is due every N seconds is due after `train_seconds`; wall_seconds begin again at 0.
        """
        self.train_seconds = self.before_step = train_seconds
        for phase, seconds in outside.items():
            self.outside[phase] += seconds

    @property
    def wall_seconds(self) -> float:
        """Seconds since the clock was made, everything included."""
        return self.now() - self.started

    def watch_stops(self) -> None:
        """Exclude the time for which the process is stopped, from now on.

        A thread looks at the time again and again. A long gap is a stop if SIGCONT came, with which
        a stopped process goes on: a busy machine sends none.
        """

        def look_again() -> None:
            while True:
                self.look()
                time.sleep(TICK)

        self.look()
        self.longest_gap = 0.0
        threading.Thread(target=look_again, daemon=True).start()
        signal.signal(signal.SIGCONT, self.resumed)

    def look(self) -> float:
        """Note the time; called while the process runs."""
        now = self.now()
        self.longest_gap = max(self.longest_gap, now - self.looked)
        self.looked = now
        return now

    def resumed(self, *_: object) -> None:
        """The handler of SIGCONT. Schedulers also send it to a process that was not stopped."""
        self.look()
        if self.longest_gap > 5 * TICK:
            self.stopped += self.longest_gap
            self.outside["stopped"] += self.longest_gap
        self.longest_gap = 0.0

    def running_time(self) -> float:
        """Seconds since the start, without those for which the process was stopped."""
        now = self.look()
        self.longest_gap = 0.0
        return now - self.stopped

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block: a phase of the step, or something outside of training."""
        start = self.running_time()
        self.running = name
        try:
            yield
            self.running = "update"
        finally:
            seconds = self.running_time() - start
            if name in STEP_PHASES:
                self._add(name, seconds)
            else:
                self.outside[name] += seconds
                self.step_started += seconds  # in the middle of a step: not part of it

    def start_step(self) -> None:
        """Start a step; the time since the last one is not counted."""
        self.step = {}
        self.step_peak = {}
        self.peak()  # discards the peak since the last step
        self.step_started = self.running_time()

    def end_step(self, priced: ByPhase | None = None) -> None:
        """The step ends now: what its other phases left is its update.

        priced: seconds by phase that count in place of the measured ones.
        """
        seconds = self.running_time() - self.step_started
        self._add("update", seconds - sum(self.step.values()))
        # A step of several ranks took as long as its slowest.
        steps = ranks.gather([(seconds, self.step)])
        seconds, self.step = max(steps, key=lambda step: step[0])
        if priced is not None:
            seconds = sum(priced.values())
            self.step = priced
        self.before_step = self.train_seconds
        self.train_seconds += seconds

    def _add(self, phase: str, seconds: float) -> None:
        self.step[phase] = self.step.get(phase, 0.0) + seconds
        gib = self.peak()
        if gib is not None:
            self.step_peak[phase] = max(self.step_peak.get(phase, 0.0), gib)

    def is_due(self, every_seconds: float | None) -> bool:
        """Whether the newest step crossed a multiple of `every_seconds` of training: a fixed grid,
        so that a late step shifts nothing."""
        if not every_seconds:
            return False
        return self.train_seconds // every_seconds > self.before_step // every_seconds


def priced(prices: Prices, rounds: int, sampled: np.ndarray, trained: np.ndarray) -> ByPhase:
    """Seconds of a step by phase. generate: fixed + round (rounds - 1) + a price for each sampled
    rollout; update: a price for each trained one. sampled, trained: lengths in tokens; with
    `prices.tokens` a price is for that many tokens instead of a rollout."""

    def units(lengths: np.ndarray) -> float:
        return len(lengths) if prices.tokens is None else lengths.sum() / prices.tokens

    generation = prices.fixed + prices.round * (rounds - 1) + prices.generate * units(sampled)
    return {"generate": float(generation), "update": float(prices.update * units(trained))}


def peak_memory() -> float | None:
    """For `Clock.peak`: peak GiB on the CUDA device since the last call; None without a device."""
    import torch

    if not torch.cuda.is_available():
        return None
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return peak
