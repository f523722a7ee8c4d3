"""by=<column> of evaluate_run.py: the questions of each value, and what a new score replaces."""

import pytest

from pods.config.errors import UserError
from pods.evaluation.questions import Questions, by_value
from pods.evaluation.targets import Store, Target
from pods.runs.results import Entry


def questions(levels, **more):
    rows = [{"id": str(i), "prompt": "", "level": level} for i, level in enumerate(levels)]
    return Questions("math500", "math", rows, **more)


def test_the_questions_of_each_value_are_a_data_set():
    q = questions([10, 9, None, 10])
    assert by_value(q, None) == {"math500": [0, 1, 2, 3]}
    assert by_value(q, "level") == {
        "math500": [0, 1, 2, 3],
        "math500/level=9": [1],
        "math500/level=10": [0, 3],
        "math500/level=None": [2],
    }


def test_those_of_greedy_completions_end_as_their_data_sets_do():
    q = Questions("math500.greedy", "math", questions(["a"]).rows, greedy=True)
    assert [*by_value(q, "level")] == ["math500.greedy", "math500/level=a.greedy"]


@pytest.mark.parametrize(("column", "words"), [("lvl", "it has level"), ("level", "30 values")])
def test_a_column_that_cannot_be_counted_is_refused(column, words):
    with pytest.raises(UserError, match=f"^by={column}: .*{words}"):
        by_value(questions(range(30)), column)


def test_scores_by_a_column_leave_with_the_old_ones_of_their_task(tmp_path):
    store = Store(tmp_path, "a")
    for task in ("gsm8k", "gsm8k/level=1", "gsm8k.greedy", "math/level=1", "gsm8k"):
        store.add(Target(), task, Entry(), {"rewards": {"v2": {}}})
    assert [*store.scores[0].datasets] == ["gsm8k", "gsm8k.greedy", "math/level=1"]
