"""Peak memory by phase: what the clock asks of the device, and when it forgets."""

from pods.clock import Clock


def test_peaks_belong_to_their_phase():
    readings = iter([90.0, 7.0, 1.0, 5.0, 3.0, 80.0, 2.0])  # GiB since the call before
    clock = Clock()
    clock.peak = lambda: next(readings)
    clock.start_step()  # 90: loading, forgotten
    for phase in ("generate", "score", "generate"):  # a phase that comes twice keeps its higher one
        with clock.phase(phase):
            pass
    clock.end_step()
    assert clock.step_peak == {"generate": 7.0, "score": 1.0, "update": 3.0}
    clock.start_step()  # 80: between the steps
    assert clock.step_peak == {}
    clock.end_step()
    assert clock.step_peak == {"update": 2.0}


def test_without_a_device_nothing_is_measured():
    clock = Clock()
    clock.start_step()
    clock.end_step()
    assert clock.step_peak == {}
