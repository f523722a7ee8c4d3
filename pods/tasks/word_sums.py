"""Task `word_sums`: generated one-step sums in words, for models of about 100 million parameters;
not in the paper (config/experiment/smollm2.yaml)."""

import random

from pods.tasks.files import numbered
from pods.tasks.gold import text_or_number
from pods.tasks.task import Task

SPLITS = {"train": range(400), "validation": range(400, 656), "test": range(656, 912)}
NAMES = ("Ann", "Ben", "Eva", "Leo", "Max", "Mia", "Sam", "Tom")
THINGS = ("apples", "books", "cards", "coins", "cups", "eggs", "pens", "shells")
GAINS = ("buys {} more", "finds {} more", "gets {} more")
LOSSES = ("gives away {}", "loses {}", "sells {}")


def rows(split: str) -> list[dict[str, str]]:
    """The rows of train, validation or test: always the same ones, no question twice."""
    rng = random.Random("word_sums")
    answers: dict[str, str] = {}
    while len(answers) < SPLITS["test"].stop:
        smaller, larger = sorted(rng.choices(range(2, 10), k=2))
        if rng.random() < 0.5:
            start, change, event = smaller, larger, rng.choice(GAINS)
        else:
            start, change, event = larger + 1, -smaller, rng.choice(LOSSES)
        name, things = rng.choice(NAMES), rng.choice(THINGS)
        what = event.format(abs(change))
        answers[f"{name} has {start} {things} and {what}. How many now?"] = str(start + change)
    questions = [*answers]
    return [
        {"id": f"word_sums-{i}", "question": questions[i], "answer": answers[questions[i]]}
        for i in SPLITS[split]
    ]


TASK = Task(
    name="word_sums",
    splits={split: split for split in SPLITS},
    rows=lambda split: numbered(f"word_sums, {split}", rows(split)),
    question="question",
    answer="answer",
    gold=text_or_number,
)
