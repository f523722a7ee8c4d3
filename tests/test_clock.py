"""The clock counts steps and nothing else; its grid does not move."""

from types import SimpleNamespace

import pytest
import torch

from pods import ranks
from pods.clock import Clock, peak_memory
from pods.training.loop import RunCallback
from tests.configs import compose


class Time:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


def step(clock: Clock, time: Time, **phases: float) -> None:
    clock.start_step()
    for name, seconds in phases.items():
        if name == "update":
            time.seconds += seconds
            continue
        with clock.phase(name):
            time.seconds += seconds
    clock.end_step()


def test_a_step_is_its_phases_and_the_rest_is_update(time):
    clock = Clock(time)
    step(clock, time, generate=3.0, score=0.5, select=0.25, update=1.25)
    assert clock.step == {"generate": 3.0, "score": 0.5, "select": 0.25, "update": 1.25}
    assert clock.train_seconds == 5.0


def test_loading_checkpoints_and_pauses_are_not_training(time):
    clock = Clock(time)
    with clock.phase("load"):
        time.seconds += 60
    step(clock, time, generate=1.0)
    with clock.phase("checkpoint"):
        time.seconds += 7
    time.seconds += 1000  # a pause between steps
    step(clock, time, generate=1.0)
    assert clock.train_seconds == 2.0
    assert dict(clock.outside) == {"load": 60.0, "checkpoint": 7.0}
    assert clock.wall_seconds == 1069.0


def test_time_counts_when_a_phase_raises(time):
    clock = Clock(time)
    clock.start_step()

    def fails() -> None:
        with clock.phase("score"):
            time.seconds += 2
            raise ValueError("reward")

    with pytest.raises(ValueError, match="reward"):
        fails()
    assert clock.step["score"] == 2.0


@pytest.mark.parametrize(
    ("steps", "saved", "why"),
    [
        ([4, 4, 4, 4, 4], [False, False, True, False, True], "marks at 10 and 20"),
        ([12, 4, 4], [True, False, True], "a late step does not shift the mark at 20"),
        ([25, 4, 4], [True, False, True], "two marks in one step save once; the next is 30"),
        ([10, 9, 1], [True, False, True], "exactly on a mark"),
    ],
)
def test_marks_stay_on_the_grid(time, steps, saved, why):
    clock = Clock(time)
    passed = []
    for seconds in steps:
        step(clock, time, update=seconds)
        passed.append(clock.passed_mark(10))
    assert passed == saved, why
    assert not clock.passed_mark(None)
    assert not Clock().passed_mark(10)


def test_a_resumed_clock_goes_on_where_it_was(time):
    clock = Clock(time)
    clock.restore(19.0, {"load": 5.0})
    assert not clock.passed_mark(10)
    step(clock, time, update=2.0)
    assert clock.train_seconds == 21.0
    assert clock.passed_mark(10)
    assert clock.outside["load"] == 5.0


def test_a_training_that_is_built_again_has_the_wall_time_of_its_process(time):
    assert Clock(time, started=time() - 30).wall_seconds == 30


def loop_with(clock: Clock) -> SimpleNamespace:
    return SimpleNamespace(clock=clock, config=compose(), between_generations=lambda state: True)


def test_a_step_ends_when_the_device_has_finished_it(time, monkeypatch):
    def wait_for_kernels() -> None:
        time.seconds += 3

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", wait_for_kernels)
    clock = Clock(time)
    clock.start_step()
    time.seconds += 1
    RunCallback.on_step_end(loop_with(clock), None, None, None)
    assert clock.train_seconds == 4.0


def test_waiting_for_the_rank_that_logs_is_not_training(time, monkeypatch):
    """Rank 0 alone logs and saves; the others wait at the barrier before their clock starts."""
    waits = []

    def wait() -> None:
        waits.append(time.seconds)
        time.seconds += 30  # rank 0 is still logging

    monkeypatch.setattr(ranks, "wait", wait)
    clock = Clock(time)
    loop = loop_with(clock)
    RunCallback.on_step_begin(loop, None, None, None)
    time.seconds += 1
    RunCallback.on_step_end(loop, None, None, None)
    assert len(waits) == 1
    assert clock.train_seconds == 1.0


def test_peaks_belong_to_their_phase():
    readings = iter([90.0, 7.0, 0.5, 5.0, 3.0, 80.0, 2.0])  # GiB since the call before
    clock = Clock()
    clock.peak = lambda: next(readings)
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


def test_a_devices_peak_is_read_in_gib_and_reset(monkeypatch):
    bytes_in_use = [3 * 2**30]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: bytes_in_use[0])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", bytes_in_use.clear)
    assert peak_memory() == 3.0
    assert bytes_in_use == []


def test_without_a_device_nothing_is_measured():
    clock = Clock()
    clock.start_step()
    clock.end_step()
    assert clock.step_peak == {}
