"""The net: no digest of training, evaluation, grading or figures changes (tests/golden)."""

import pytest

from tests import golden


@pytest.mark.parametrize("case", golden.CASES)
def test_no_digest_changes(case, tmp_path):
    if reason := golden.reason_to_skip(case):
        pytest.skip(reason)
    assert golden.changed(case, tmp_path) == []
