"""Tasks `arithmetic` and `arithmetic_long`: generated sums in GSM8K's shape, and three rewards for
them; not in the paper (docs/board.md)."""

import hashlib
import random
import re
from collections.abc import Iterator
from typing import Any

from pods.tasks.files import numbered
from pods.tasks.gold import text_or_number
from pods.tasks.task import Task

SIZES = {"train": 400, "validation": 256, "test": 256}
# The percent of all questions with which each split ends; the tiny policy learnt from `base`.
ENDS = {"base": 26, "train": 76, "validation": 88, "test": 100}
# Of a question: the fewest and the most operations, and the smallest number in them.
MOVES = {"arithmetic": (2, 4, 1), "arithmetic_long": (4, 6, 5)}
LARGEST = 19  # running values are 0..19; none is negative: the v1 and v2 rewards take "-5" for 5
Problem = tuple[str, str]  # question, answer


def rows(split: str, task: str = "arithmetic") -> list[dict[str, str]]:
    """The rows of train, validation or test: always the same ones, no question twice."""
    answers: dict[str, str] = {}
    for question, answer in problems(split, task=task):
        answers[question] = answer
        if len(answers) == SIZES[split]:
            break
    return [
        {"id": f"arithmetic-{split}-{i}", "question": question, "answer": answer}
        for i, (question, answer) in enumerate(answers.items())
    ]


def problems(split: str, seed: int = 0, task: str = "arithmetic") -> Iterator[Problem]:
    """Endless problems of one split (also `base`), with repetitions, sampled from `seed`."""
    rng = random.Random(f"{split} {seed}")
    while True:
        question, answer = sample(rng, *MOVES[task])
        if split_of(question) == split:
            yield question, answer


def sample(rng: random.Random, fewest: int, most: int, smallest: int) -> Problem:
    """Operations + or - on digits up to 9."""
    value = rng.randint(1, 9)
    question = str(value)
    for _ in range(rng.randint(fewest, most)):
        moves = [d for d in range(-9, 10) if abs(d) >= smallest and 0 <= value + d <= LARGEST]
        move = rng.choice(moves)
        question += f"{move:+d}"
        value += move
    return f"{question}=?", str(value)


def split_of(question: str) -> str:
    """The split that owns a question, by its hash: no question is in two splits."""
    percent = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big") % 100
    return next(split for split, end in ENDS.items() if percent < end)


def task(name: str) -> Task:
    """One of the two, by the length of its questions."""
    return Task(
        name=name,
        splits={split: split for split in SIZES},
        rows=lambda split: numbered(f"{name}, {split}", rows(split, name)),
        question="question",
        answer="answer",
        gold=text_or_number,
    )


TASKS = tuple(map(task, MOVES))


def noisy(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 if the last number is the answer, else 0; reversed for 15 % of the texts, always the same
    ones, as a faulty grader does."""
    values = []
    for text, gold in zip(completions, answer, strict=True):
        correct = re.findall(r"\d+", text)[-1:] == [gold]
        wrong = hashlib.sha256(text.encode()).digest()[0] < 0.15 * 256
        values.append(float(correct != wrong))
    return values


def steps(completions: list[str], **columns: Any) -> list[float]:
    """Partial credit: the share of a text's steps, such as 8+4=12, that are right; 0 without."""
    values = []
    for text in completions:
        written = re.findall(r"(\d+)([+-]\d)=(\d+)", text)
        right = [int(value) + int(move) == int(result) for value, move, result in written]
        values.append(sum(right) / max(1, len(right)))
    return values


def noise(completions: list[str], **columns: Any) -> list[float]:
    """A reward that knows nothing: a coin tossed by the text."""
    return [float(random.Random(text).random() < 0.5) for text in completions]
