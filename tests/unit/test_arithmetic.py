"""pods/tasks/arithmetic.py: correct gold answers, disjoint splits, always the same rows."""

import hashlib
import re
from itertools import accumulate, islice

import numpy as np
import pytest

from pods import tasks
from pods.tasks import arithmetic


def test_splits_are_disjoint_from_each_other_and_from_the_base():
    problems = [islice(arithmetic.problems("base", seed), 2000) for seed in range(3)]
    base = {question for part in problems for question, _ in part}
    splits = [{*tasks.load("arithmetic", split)["question"]} for split in arithmetic.SIZES]
    assert len(set.union(base, *splits)) == len(base) + sum(arithmetic.SIZES.values())
    assert [*arithmetic.ENDS.values()] == [26, 76, 88, 100]  # the base has seen the first 26


@pytest.mark.parametrize(("split", "size"), arithmetic.SIZES.items(), ids=arithmetic.SIZES)
def test_every_question_of_a_split_comes_once(split, size):
    dataset = tasks.load("arithmetic", split)
    assert len({*dataset["question"]}) == len({*dataset["id"]}) == len(dataset) == size


@pytest.mark.parametrize(
    ("split", "digest"),
    [
        ("train", "51673d5877907016"),
        ("validation", "36b0f0e17bb81a15"),
        ("test", "1996b131638bcd67"),
        ("base", "1667fb7be45a99be"),
    ],
)
def test_the_questions_are_those_of_earlier_runs_and_gold_is_the_sum(split, digest):
    """Results and the tiny policy, which was trained on `base`, rely on the same questions."""
    problems = list(islice(arithmetic.problems(split), arithmetic.SIZES.get(split, 1000)))
    text = "".join(question for question, _ in problems)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
    assert problems[:50] != list(islice(arithmetic.problems(split, seed=1), 50))
    assert [problem for problem in problems[:500] if not is_a_sum(*problem)] == []


def is_a_sum(question: str, answer: str) -> bool:
    """Whether every value on the way from left to right is allowed, and the last is the answer."""
    values = list(accumulate(int(number) for number in re.findall(r"[+-]?\d", question)))
    well_formed = re.fullmatch(r"\d([+-][1-9]){2,4}=\?", question)
    allowed = all(0 <= value <= arithmetic.LARGEST for value in values)
    return bool(well_formed) and allowed and answer == str(values[-1])


def test_long_questions_have_four_to_six_operations():
    rows = tasks.load("arithmetic_long", "test")
    assert {len(re.findall("[+-]", question)) for question in rows["question"]} == {4, 5, 6}
    assert len({*rows["question"]}) == 256


def test_the_noisy_reward_errs_on_the_same_15_percent_of_the_texts():
    texts = [f"<think>{i}</think><answer>7</answer>" for i in range(2000)]
    right = arithmetic.noisy(completions=texts, answer=["7"] * 2000)
    wrong = arithmetic.noisy(completions=texts, answer=["8"] * 2000)
    assert np.mean(right) == pytest.approx(0.85, abs=0.03)
    assert [1 - value for value in right] == wrong


@pytest.mark.parametrize(
    ("text", "value"),
    [("<think>3+5=8. 8-2=6</think>", 1.0), ("3+5=9. 9-2=7", 0.5), ("no step", 0.0)],
)
def test_partial_credit_is_the_share_of_right_steps(text, value):
    assert arithmetic.steps(completions=[text]) == [value]
