"""The numbers of a step, and what a run counts up."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pods.batch import Selection
from pods.clock import Clock
from pods.rollouts import Record
from pods.training.logs import COUNTERS, Meter
from tests.steps import step_of


def step_by_hand() -> Record:
    record = step_of({"a": [1.0, 0.0, 2.0], "b": [4.0, 4.0, 4.0]}, [0, 2, 3])
    batch = replace(
        record.batch,
        by_function={"correctness": np.array([1.0, 0, 1, 1, 1, 1])},
        lengths=np.array([1, 2, 3, 4, 5, 9]),
        clipped=np.array([False, False, False, False, False, True]),
    )
    return replace(record, batch=batch, selection=Selection(np.array([0, 2, 3]), np.zeros(3)))


def test_the_numbers_of_a_step_by_hand():
    assert step_by_hand().summary() == pytest.approx({
        "all/reward_mean": 15 / 6,
        "all/reward_std": (2 / 3) ** 0.5 / 2,  # of the two prompts: sqrt(2/3) and 0
        "all/reward_variance": 1 / 3,
        "all/reward_min": 0,
        "all/reward_max": 4,
        "all/zero_variance_groups": 0.5,
        "all/completion_length_mean": 4,
        "all/completion_length_max": 9,
        "all/clipped_ratio": 1 / 6,
        "kept/reward_mean": 7 / 3,
        "kept/reward_variance": 0.125,  # of 1 and 2, and of 4 alone
        "kept/completion_length_mean": 8 / 3,
        "all/correctness_mean": 5 / 6,
        "generate/rounds": 1,
        "generate/rollouts": 6,
        "select/filled": -1,  # of a budget of 2
    })  # fmt: skip


def test_counters_add_up_over_steps_and_go_on_from_a_checkpoint():
    step = step_of({"a": [0.0, 1.0, 0.5, 0.2], "b": [1.0] * 4}, [0, 1, 5])
    trainer = SimpleNamespace(
        newest=step, clock=Clock(), packing=dict,
        sampler=SimpleNamespace(engine=SimpleNamespace(metrics={"engine/logprob_gap": 3.0})),
    )  # fmt: skip
    meter = Meter(SimpleNamespace(timeouts=2))
    given = {"tokens_generated": 100, "tokens_trained": 50, "rollouts_generated": 80}
    meter.restore(given | {"rollouts_trained": 30, "step": 9})
    for k in (1, 2):
        meter.updates = [{"loss": 1.0, "kl": None}, {"loss": 2.0 * k, "grad_norm": 4.0}]
        line = meter.line(trainer)
        counted = [100 + k * 20, 50 + k * (1 + 2 + 2), 80 + k * 8, 30 + k * 3]
        assert [line[name] for name in COUNTERS] == counted
        assert (line["loss"], line["grad_norm"]) == (0.5 + k, 4.0)
        assert "kl" not in line
        assert (line["score_timeouts"], line["engine/logprob_gap"]) == (2, 3.0)
        assert meter.updates == []
