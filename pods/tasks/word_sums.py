"""Task `word_sums`: generated one-step sums in words, for models of about 100 million parameters;
not in the paper (config/experiment/smollm2.yaml)."""

import random

from pods.tasks.arithmetic import SIZES, split_of
from pods.tasks.files import numbered
from pods.tasks.gold import text_or_number
from pods.tasks.task import Task

NAMES = ("Ann", "Ben", "Eva", "Leo", "Max", "Mia", "Sam", "Tom")
THINGS = ("apples", "books", "cards", "coins", "cups", "eggs", "pens", "shells")
GAINS = ("buys {} more", "finds {} more", "gets {} more")
LOSSES = ("gives away {}", "loses {}", "sells {}")


def rows(split: str) -> list[dict[str, str]]:
    """The rows of train, validation or test: always the same ones, no question in two splits."""
    rng = random.Random(f"word_sums {split}")
    answers: dict[str, str] = {}
    while len(answers) < SIZES[split]:
        smaller, larger = sorted(rng.choices(range(2, 10), k=2))
        if rng.random() < 0.5:
            start, change, event = smaller, larger, rng.choice(GAINS)
        else:
            start, change, event = larger + 1, -smaller, rng.choice(LOSSES)
        name, things = rng.choice(NAMES), rng.choice(THINGS)
        what = event.format(abs(change))
        question = f"{name} has {start} {things} and {what}. How many now?"
        if split_of(question) == split:
            answers[question] = str(start + change)
    return [
        {"id": f"word_sums-{split}-{i}", "question": question, "answer": answer}
        for i, (question, answer) in enumerate(answers.items())
    ]


TASK = Task(
    name="word_sums",
    hub="pods/tasks/word_sums.py",
    splits={split: split for split in SIZES},
    rows=lambda split: numbered(f"word_sums, {split}", rows(split)),
    question="question",
    answer="answer",
    gold=text_or_number,
)
