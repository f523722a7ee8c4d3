"""The line of a run that does not learn: each sign by made-up metrics, said once."""

import pytest

from pods.training.watch import WINDOW, Watch
from tests.configs import compose

GOOD = {
    "all/reward_mean": 0.8,
    "all/zero_variance_groups": 0.4,
    "all/format_mean": 0.05,
    "all/clipped_ratio": 0.1,
    "kept/completion_length_mean": 20.0,
}
NONE_KEPT = {"kept/completion_length_mean": None}  # pods/metrics.py leaves out what is not defined
DEAD, LOST = {"all/zero_variance_groups": 1.0}, {"all/reward_mean": 0.3}


@pytest.mark.parametrize(
    ("overrides", "steps", "parts"),
    [
        ("", [{}] * 200, []),
        ("", [DEAD] * 49 + [{}] + [DEAD] * 49, []),
        ("", [DEAD] * 50, ["no signal", "harder"]),
        ("", [DEAD | {"all/clipped_ratio": 1.0}] * 50, ["max_completion_length=48"]),
        ("", [{}] * 50 + [LOST] * 50, ["fell from 0.8 to 0.3", "optimizer.learning_rate=0.001"]),
        ("", [{"all/reward_mean": -3.0}] * 150, []),  # a reward may be a penalty
        ("", [{"all/reward_mean": r} for r in (-2.0, -4.0) for _ in range(50)], ["from -2 to -"]),
        ("", [{"all/format_mean": 0.0}] * 50, ["earned format", "task.system"]),
        ("rewards.weights.format=0", [{"all/format_mean": 0.0}] * 50, []),
        ("", [NONE_KEPT] * 50, ["no rollout was trained on: algorithm=pods returns none"]),
        ("", [NONE_KEPT] * 49 + [{}] + [NONE_KEPT] * 49, []),
        ("rewards=v1", [{"all/format_mean": 0.0}] * 50, []),  # correct answers earn none
    ],
)
def test_each_sign_is_named_with_the_key_to_change(overrides, steps, parts):
    watch, problems, lengths = Watch(compose(*overrides.split())), [], []
    for step in steps:
        line = {k: value for k, value in (GOOD | step).items() if value is not None}
        lengths.append(watch(line)["watch/steps_without_signal"])
        problems.append(watch.problem)
    assert max(lengths) <= WINDOW
    assert [part for part in parts if part not in problems[-1]] == []
    assert bool(parts) == bool(problems[-1])
    assert not any(problems[: WINDOW - 1])
    assert len({*problems} - {""}) <= 1  # the first sign stays


def test_steps_without_any_reward_have_no_mean():
    watch = Watch(compose())
    unscored = {key: value for key, value in GOOD.items() if key != "all/reward_mean"}
    lines = [watch(unscored) for _ in range(WINDOW)]
    assert lines[-1] == {"watch/steps_without_signal": 0.0}
    assert watch(GOOD)["watch/reward_lost"] == 0.0
