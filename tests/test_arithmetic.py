"""pods/tasks/arithmetic.py: right gold answers, disjoint splits, always the same rows."""

import hashlib
import re
from itertools import islice

import pytest

from pods.tasks import arithmetic

SPLITS = list(arithmetic.SIZES)


def questions(split: str) -> set[str]:
    return {row["question"] for row in arithmetic.rows(split)}


def test_splits_are_disjoint_from_each_other_and_from_the_base() -> None:
    base = {
        p.question for seed in range(3) for p in islice(arithmetic.problems("base", seed), 5000)
    }
    held = [base, *map(questions, SPLITS)]
    assert len(set().union(*held)) == sum(map(len, held))


@pytest.mark.parametrize("split", SPLITS)
def test_rows(split: str) -> None:
    rows = arithmetic.rows(split)
    assert len(rows) == arithmetic.SIZES[split]
    assert len(questions(split)) == len({row["id"] for row in rows}) == len(rows)
    assert rows == arithmetic.rows(split)  # the same in every run
    assert all(row.keys() == {"id", "question", "answer"} for row in rows)


@pytest.mark.parametrize(
    ("split", "digest"),
    [
        ("train", "2f6b6fbbb48c7882"), ("validation", "36b0f0e17bb81a15"),
        ("test", "1996b131638bcd67"), ("base", "1667fb7be45a99be"),
    ],
)  # fmt: skip
def test_the_questions_are_those_of_earlier_runs(split: str, digest: str) -> None:
    """Their results and the tiny policy, which was trained on `base`, rely on it."""
    drawn = islice(arithmetic.problems(split), arithmetic.SIZES.get(split, 1000))
    text = "".join(problem.question for problem in drawn)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("split", [*SPLITS, "base"])
def test_gold_is_the_sum_and_running_values_stay_in_range(split: str) -> None:
    for problem in islice(arithmetic.problems(split), 500):
        assert re.fullmatch(r"\d([+-][1-9]){2,4}=\?", problem.question)
        numbers = [int(number) for number in re.findall(r"[+-]?\d", problem.question)]
        values = [sum(numbers[:i]) for i in range(1, len(numbers) + 1)]
        assert problem.answer == str(values[-1])
        assert all(0 <= value <= arithmetic.LARGEST for value in values)
        steps = [
            f"{before}{number:+d}={after}"
            for before, number, after in zip(values, numbers[1:], values[1:], strict=False)
        ]
        assert problem.solution == ". ".join(steps)


def test_shares_cover_every_question() -> None:
    assert sum(arithmetic.SHARES.values()) == 100


def test_seeds_draw_different_problems() -> None:
    first, second = (list(islice(arithmetic.problems("base", seed), 50)) for seed in (0, 1))
    assert first != second
