"""The shared data without a gold or a question to warn of."""

import pytest

from tests.unit.test_tasks_review import load


@pytest.mark.parametrize("name", ["gsm8k", "chemistry"])
def test_the_shared_data_is_clean(name, shared, capsys):
    load(f"task={name}", f"data_dir={shared / 'data'}", "rewards=strict")
    err = capsys.readouterr().err
    assert "gold answers" not in err
    assert "test questions" not in err
