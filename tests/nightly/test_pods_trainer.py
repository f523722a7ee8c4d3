"""PodsTrainer beside GRPOTrainer in the other scripts, and in the other losses with filled rows."""

import pytest

from tests.unit.test_pods_trainer import (
    CASES,
    FAST,
    MORE_LOSSES,
    filled_rows_count_nowhere,
    grpo_equals_trls_trainer,
    id_of,
    small_model,
)


@pytest.mark.filterwarnings("error:.*NaN slice:RuntimeWarning", "error:Mean of empty")
@pytest.mark.parametrize("case", [case for case in CASES if case not in FAST])
def test_grpo_equals_trls_trainer_to_the_bit_over_two_epochs(case, tmp_path):
    grpo_equals_trls_trainer(CASES[case], tmp_path)


@pytest.mark.parametrize(("loss", "rows", "changes"), MORE_LOSSES, ids=id_of)
def test_rows_that_fill_the_step_are_in_no_loss_and_in_no_denominator(
    tmp_path, loss, rows, changes
):
    filled_rows_count_nowhere(small_model(tmp_path / "small"), loss, rows, **changes)
