"""The clock counts steps and nothing else; its grid does not move."""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from transformers import TrainerState

from pods import ranks
from pods.clock import Clock, peak_memory, priced
from tests.configs import compose
from tests.unit.test_trainer import build, callback_of, rows


@dataclass
class Time:
    """It is moved by hand."""

    seconds: float


@pytest.fixture
def time():
    return Time(100.0)


@pytest.fixture
def clock(time):
    return Clock(lambda: time.seconds)


def step(clock, time, **phases):
    clock.start_step()
    for name, seconds in phases.items():
        with nullcontext() if name == "update" else clock.phase(name):
            time.seconds += seconds
    clock.end_step()


def test_a_step_is_its_phases_and_nothing_outside_of_it(clock, time):
    with clock.phase("load"):
        time.seconds += 60
    step(clock, time, generate=3.0, score=0.5, log=9.0, select=0.25, update=1.25)
    assert clock.step == {"generate": 3.0, "score": 0.5, "select": 0.25, "update": 1.25}
    assert clock.train_seconds == 5.0
    with clock.phase("checkpoint"):
        time.seconds += 7
    time.seconds += 1000  # a pause between steps
    step(clock, time, generate=1.0)
    assert clock.train_seconds == 6.0
    assert clock.outside == {"load": 60.0, "log": 9.0, "checkpoint": 7.0}
    assert clock.wall_seconds == 1082.0


@pytest.mark.parametrize(
    ("tokens", "rounds", "phases", "why"),
    [
        (None, 1, {"generate": 4.8 + 4 * 0.06, "update": 2 * 0.105}, "rollouts of any length"),
        (None, 3, {"generate": 3 * 4.8 + 4 * 0.06, "update": 2 * 0.105}, "two rounds more"),
        (20.0, 1, {"generate": 4.8 + 5 * 0.06, "update": 3 * 0.105}, "100 and 60 of 20 tokens"),
    ],
)
def test_a_price_list_replaces_the_measured_seconds(clock, time, tokens, rounds, phases, why):
    prices = compose("clock=l40s").clock.model_copy(update={"tokens": tokens})
    seconds = priced(prices, rounds, np.array([10, 20, 30, 40]), np.array([20, 40]))
    assert seconds == pytest.approx(phases), why
    clock.start_step()
    time.seconds += 1000
    clock.end_step(seconds)
    assert clock.step == seconds
    assert clock.train_seconds == sum(seconds.values())


@pytest.mark.parametrize(
    ("steps", "saved", "why"),
    [
        ([4, 4, 4, 4, 4], [False, False, True, False, True], "points at 10 and 20"),
        ([12, 4, 4], [True, False, True], "a late step does not shift the point at 20"),
        ([25, 4, 4], [True, False, True], "two points in one step save once; the next is 30"),
        ([10, 9, 1], [True, False, True], "exactly on a point"),
    ],
)
def test_marks_stay_on_the_grid(clock, time, steps, saved, why):
    passed = []
    for seconds in steps:
        step(clock, time, update=seconds)
        passed.append(clock.is_due(10))
    assert passed == saved, why
    assert not clock.is_due(None)
    assert not Clock().is_due(10)


def test_a_resumed_clock_goes_on_where_it_was(clock, time):
    clock.restore(19.0, {"load": 5.0})
    assert not clock.is_due(10)
    step(clock, time, update=2.0)
    assert (clock.train_seconds, clock.is_due(10), clock.outside["load"]) == (21.0, True, 5.0)


def test_a_step_ends_with_the_device_and_does_not_wait_for_the_rank_that_logs(
    clock, time, monkeypatch
):
    def passing(seconds):
        time.seconds += seconds

    callback = callback_of(build([], dataset=rows()), "clock=measured", clock=clock)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: passing(3))  # kernels still queued
    monkeypatch.setattr(ranks, "wait", lambda: passing(30))  # rank 0 is still logging
    faster = (3.0, {"update": 3.0})  # another rank; the slowest counts
    monkeypatch.setattr(ranks, "gather", lambda items: [*items, faster])
    callback.on_step_begin(None, TrainerState(), None)
    time.seconds += 1
    callback.on_step_end(None, TrainerState(), None)
    assert (clock.train_seconds, time.seconds) == (4.0, 134.0)


def test_the_time_for_which_a_process_is_stopped_is_not_counted(clock, time):
    def passing(seconds, ticks=1):
        for _ in range(ticks):
            time.seconds += seconds / ticks
            clock.look()  # by the thread, which stops, too

    clock.start_step()
    with clock.phase("generate"):
        passing(3.0, ticks=30)
        passing(15.0)
        clock.resumed()
        passing(1.0, ticks=10)
        clock.resumed()  # of a scheduler, before it ends the job
    passing(4.0)  # a busy machine
    clock.end_step()
    clock.resumed()
    assert clock.step == pytest.approx({"generate": 4.0, "update": 4.0})
    assert clock.train_seconds == pytest.approx(8.0)
    assert clock.wall_seconds == pytest.approx(23.0)
    assert clock.outside["stopped"] == pytest.approx(15.0)


def test_peaks_belong_to_their_phase(monkeypatch):
    readings = iter([90.0, 7.0, 0.5, 5.0, 3.0, 80.0, 2.0])  # GiB since the call before
    clock = Clock(peak=lambda: next(readings))
    clock.start_step()  # 90: loading, forgotten
    for phase in ("generate", "score", "generate"):  # a phase that comes twice keeps its higher one
        with clock.phase(phase):
            pass
    clock.end_step()
    assert clock.step_peak == {"generate": 7.0, "score": 0.5, "update": 3.0}
    clock.start_step()  # 80: between the steps
    assert clock.step_peak == {}
    clock.end_step()
    assert clock.step_peak == {"update": 2.0}
    assert peak_memory() is None  # without a device
    in_use = [3 * 2**30]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: in_use[0])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", in_use.clear)
    assert (peak_memory(), in_use) == (3.0, [])
