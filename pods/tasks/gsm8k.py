"""Task `gsm8k`: grade-school word problems (openai/gsm8k, main), 7,473 train and 1,319 test."""

from pods.tasks.task import Row, Task, completion, text


def after_hashes(row: Row, column: str) -> str:
    """The text after "####", without thousands separators."""
    parts = text(row, column).split("####")
    if len(parts) < 2:
        raise ValueError(f'column {column!r} has no "####" before a final answer')
    return parts[1].strip().replace(",", "")


TASK = Task(
    name="gsm8k",
    hub="openai/gsm8k",
    subsets=("main",),
    question=lambda row: text(row, "question"),
    gold=lambda row, legacy: after_hashes(row, "answer"),
    example={
        "question": "A robe takes 2 bolts of blue fiber and half that much white fiber.  How many"
        " bolts in total does it take?",
        "answer": "It takes 2/2=<<2/2=1>>1 bolt of white fiber\nSo the total amount of fabric is"
        " 2+1=<<2+1=3>>3 bolts of fabric\n#### 3",
    },
    right=completion("2 / 2 = 1 bolt of white fiber. 2 + 1 = 3.", "3"),
    wrong=completion("2 bolts of each.", "4"),
)
