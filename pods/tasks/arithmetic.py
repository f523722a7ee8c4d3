"""Task `arithmetic`: generated sums in GSM8K's shape, for the tiny policy; not in the paper."""

import hashlib
import random
from collections.abc import Iterator
from itertools import accumulate

from pods.tasks.task import Task, numbered

SIZES = {"train": 400, "validation": 256, "test": 256}
# Percent of all questions that belong to each split; the tiny policy learnt from `base`.
SHARES = {"base": 26, "train": 50, "validation": 12, "test": 12}
LARGEST = 19  # running values are 0..19; none is negative: the v1 and v2 rewards take "-5" for 5
Problem = tuple[str, str]  # question, answer


def rows(split: str) -> list[dict[str, str]]:
    """The rows of train, validation or test: always the same ones, no question twice."""
    answers: dict[str, str] = {}
    for question, answer in problems(split):
        answers[question] = answer
        if len(answers) == SIZES[split]:
            break
    return [
        {"id": f"arithmetic-{split}-{i}", "question": question, "answer": answer}
        for i, (question, answer) in enumerate(answers.items())
    ]


def problems(split: str, seed: int = 0) -> Iterator[Problem]:
    """Endless problems of one split (also `base`), with repetitions, drawn from `seed`."""
    rng = random.Random(f"{split} {seed}")
    while True:
        question, answer = draw(rng)
        if split_of(question) == split:
            yield question, answer


def draw(rng: random.Random) -> Problem:
    """Two to four operations + or - on digits 1..9."""
    question = str(value := rng.randint(1, 9))
    for _ in range(rng.randint(2, 4)):
        move = rng.choice([d for d in range(-9, 10) if d and 0 <= value + d <= LARGEST])
        question += f"{move:+d}"
        value += move
    return f"{question}=?", str(value)


def split_of(question: str) -> str:
    """The split that owns a question, by its hash: no question is in two splits."""
    percent = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big") % 100
    ends = zip(SHARES, accumulate(SHARES.values()), strict=True)
    return next(split for split, end in ends if percent < end)


TASK = Task(
    name="arithmetic",
    hub="pods/tasks/arithmetic.py",
    splits={split: split for split in SIZES},
    rows=lambda split: numbered(f"arithmetic, {split}", rows(split)),
    question=lambda row: row["question"],
    gold=lambda row: row["answer"],
)
