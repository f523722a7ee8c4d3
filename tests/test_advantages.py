"""Every advantage function against a hand computation, on even and uneven groups."""

import numpy as np
import pytest

from pods.advantages import ADVANTAGES, checked
from pods.algorithms import prepared
from pods.batch import Batch
from pods.config.errors import UserError

REWARDS = np.array([[1.0, 0.1, 0.0, 0.4, 0.9], [0.3, 0.2, 0.8, 0.8, 0.5]])
PARTS = {
    "correctness": np.array([[1, 0, 0, 0, 1], [0, 0, 1, 1, 0.0]]),
    "tags": np.array([[0.0, 0.1, 0.0, 0.4, 0.2], [0.3, 0.2, 0.1, 0.7, 0.5]]),
}
WEIGHTS = {"tags": 0.5}
BATCH = Batch(
    prompt=np.repeat([0, 1], 5), rewards=REWARDS.reshape(-1), weights=WEIGHTS,
    by_function={name: values.reshape(-1) for name, values in PARTS.items()},
)  # fmt: skip
EVEN, UNEVEN = [0, 1, 3, 5, 7, 9], [0, 2, 5, 6, 7, 9]


def normalised(values, over) -> np.ndarray:
    return (values - over.mean()) / (over.std(ddof=1) + 1e-4)


def of_kept(r, every, parts):
    return normalised(r, r)


def of_all(r, every, parts):
    return normalised(r, every)


def leave_one_out(r, every, parts):
    return np.array([r[i] - np.delete(r, i).mean() for i in range(len(r))])


def without_std(r, every, parts):
    return r - r.mean()


def each_function(r, every, parts):
    return sum(WEIGHTS.get(name, 1) * normalised(v, v) for name, v in parts.items())


BY_HAND = {
    "kept": of_kept, "all": of_all, "rloo": leave_one_out, "dr_grpo": without_std,
    "gdpo": each_function,
}  # fmt: skip


@pytest.mark.parametrize("kept", [EVEN, UNEVEN])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_against_a_hand_computation(name, kept):
    kept = np.array(kept)
    expected = []
    for p in range(2):
        mine = kept[kept // 5 == p] - 5 * p
        parts = {key: values[p, mine] for key, values in PARTS.items()}
        expected.append(BY_HAND[name](REWARDS[p, mine], REWARDS[p], parts))
    found = ADVANTAGES[name](BATCH, kept)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_one_kept_rollout_and_equal_rewards_carry_no_signal(name):
    batch = Batch(prompt=[0, 0, 0, 1, 1, 1], rewards=[0.1, 0.7, 0.3, 0.1, 0.1, 0.1])
    found = ADVANTAGES[name](batch, np.array([1, 3, 4, 5]))
    assert found.tolist() == [0, 0, 0, 0]


def test_gdpo_without_functions_is_kept():
    batch, kept = Batch(prompt=BATCH.prompt, rewards=BATCH.rewards), np.array(EVEN)
    assert ADVANTAGES["gdpo"](batch, kept).tolist() == ADVANTAGES["kept"](batch, kept).tolist()


def test_a_rollout_without_a_reward_has_advantage_0_and_leaves_the_others_alone():
    kept = np.arange(5)
    batch = Batch(prompt=[0] * 5, rewards=[0.0, np.nan, 1.0, 0.4, np.nan])
    scored = Batch(prompt=[0] * 3, rewards=[0.0, 1.0, 0.4])
    for name in ADVANTAGES:
        values = ADVANTAGES[name](batch, kept)
        assert values[[1, 4]].tolist() == [0, 0]
        assert values[[0, 2, 3]].tolist() == ADVANTAGES[name](scored, np.arange(3)).tolist()


@pytest.mark.parametrize("bad", [[0.0], [0.0, np.nan], [[0.0, 1.0]]])
def test_what_a_function_returns_is_checked(bad):
    with pytest.raises(ValueError, match=r"\(2,\) finite numbers"):
        checked(bad, 2, "it")
    assert checked([1, 2], 2, "it").tolist() == [1, 2]


def test_a_name_is_built_in_or_in_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def centred(batch, kept): return 1")
    assert prepared("advantage", f"{file}:centred", None)(None, None) == 1
    assert prepared("advantage", "rloo", None) is ADVANTAGES["rloo"]
    with pytest.raises(UserError, match=r"^advantage.name=\S+:other: other is not defined"):
        prepared("advantage", f"{file}:other", None)
    with pytest.raises(ValueError, match="one of kept, all, rloo"):
        prepared("advantage", "best", None)
