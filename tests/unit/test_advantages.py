"""Every advantage function against a hand computation, on even and uneven groups."""

import numpy as np
import pytest

from pods.advantages import ADVANTAGES, over_all
from pods.batch import Batch

REWARDS = np.float64(np.float32([[1.0, 0.1, 0.0, 0.4, 0.9], [0.3, 0.2, 0.8, 0.8, 0.5]]))
PARTS = {
    "correctness": np.array([[1, 0, 0, 0, 1], [0, 0, 1, 1, 0.0]]),
    "tags": np.array([[0.0, 0.1, 0.0, 0.4, 0.2], [0.3, 0.2, 0.1, 0.7, 0.5]]),
}
WEIGHTS = {"tags": 0.5}
BATCH = Batch(
    np.repeat([0, 1], 5),
    np.float32(REWARDS.flatten()),
    weights=WEIGHTS,
    by_function={name: values.flatten() for name, values in PARTS.items()},
)


def normalised(values, over) -> np.ndarray:
    return (values - over.mean()) / (over.std(ddof=1) + 1e-4)


BY_HAND = {  # of the kept rewards, of all, and of the kept scores by function
    "kept": lambda r, every, parts: normalised(r, r),
    "all": lambda r, every, parts: normalised(r, every),
    "rloo": lambda r, every, parts: [r[i] - np.delete(r, i).mean() for i in range(len(r))],
    "dr_grpo": lambda r, every, parts: r - r.mean(),
    "gdpo": lambda r, every, parts: sum(
        WEIGHTS.get(name, 1) * normalised(v, v) for name, v in parts.items()
    ),
}


@pytest.mark.parametrize("kept", [[0, 1, 3, 5, 7, 9], [0, 2, 5, 6, 7, 9]], ids=["even", "uneven"])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_against_a_hand_computation(name, kept):
    kept, expected = np.array(kept), []
    for p in range(2):
        mine = kept[kept // 5 == p] - 5 * p
        parts = {key: values[p, mine] for key, values in PARTS.items()}
        expected.append(BY_HAND[name](REWARDS[p, mine], REWARDS[p], parts))
    values = ADVANTAGES[name](BATCH, kept)
    np.testing.assert_allclose(values, np.concatenate(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_what_carries_no_signal_has_advantage_0(name):
    """One kept rollout, equal rewards, and a rollout without a reward, which changes no other."""
    batch = Batch(prompt=[0, 0, 0, 1, 1, 1], rewards=[0.1, 0.7, 0.3, 0.1, 0.1, 0.1])
    assert ADVANTAGES[name](batch, np.array([1, 3, 4, 5])).tolist() == [0, 0, 0, 0]
    batch = Batch(prompt=[0] * 5, rewards=[0.0, np.nan, 1.0, 0.4, np.nan])
    scored = Batch(prompt=[0] * 3, rewards=[0.0, 1.0, 0.4])
    values = ADVANTAGES[name](batch, np.arange(5))
    assert values[[1, 4]].tolist() == [0, 0]
    assert values[[0, 2, 3]].tolist() == ADVANTAGES[name](scored, np.arange(3)).tolist()


def test_over_all_kept_rows_of_equal_reward_have_advantage_0():
    batch = Batch(np.zeros(4, int), np.array([1.0, 1.0, 0.0, 0.0]))
    assert over_all(batch, np.array([0, 1])).tolist() == [0, 0]
