"""The lean update of tests/unit, with every loss, every algorithm and other settings."""

import pytest

from pods.algorithms import ALGORITHMS
from pods.pods_config import LOSSES
from tests.unit.test_lean_update import compare, small_model, three_of_each


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_those_of_all_rows_for_each_loss(folder, loss, rows):
    compare(folder, loss_type=loss, rows=rows, algorithm=three_of_each)


OTHER_SETTINGS = {
    "two iterations of two updates": {
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "num_iterations": 2,
    },
    "two generations an update": {"steps_per_generation": 2},
    "one ratio a completion": {"importance_sampling_level": "sequence", "num_iterations": 2},
    "truncated masked": {"mask_truncated_completions": True, "loss_type": "dr_grpo"},
    "truncated masked, bnpo": {"mask_truncated_completions": True, "loss_type": "bnpo"},
    "two iterations, dapo": {"num_iterations": 2, "loss_type": "dapo"},
    "two iterations, cispo": {"num_iterations": 2, "loss_type": "cispo"},
    "two iterations, sapo": {"num_iterations": 2, "loss_type": "sapo"},
    "off-policy rows masked, vespo": {
        "num_iterations": 2,
        "loss_type": "vespo",
        "off_policy_mask_threshold": 0.01,
    },
}


@pytest.mark.parametrize("changes", OTHER_SETTINGS.values(), ids=OTHER_SETTINGS)
def test_weights_are_those_of_all_rows_with_other_settings(folder, changes):
    compare(folder, rows=2, **changes)


@pytest.mark.parametrize("rows", [2, 8])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_weights_are_those_of_all_rows_for_each_algorithm(folder, name, rows):
    m = 8 if name == "grpo_ga" else 4  # it trains on all n
    compare(folder, rows=rows, num_generations=m, algorithm=ALGORITHMS[name])
