"""Task `gsm8k`: grade-school word problems (openai/gsm8k, main), 7,473 train and 1,319 test.

One real example: "A robe takes 2 bolts of blue fiber and half that much white fiber.  How many
bolts in total does it take?", solution "It takes 2/2=<<2/2=1>>1 bolt ... #### 3", gold "3".
"""

from pods.tasks.source import Row, Source, text


def gold(row: Row, legacy: bool) -> str:
    """What follows "####", without thousands separators."""
    parts = text(row, "answer").split("####")
    if len(parts) < 2:
        raise ValueError("column 'answer' has no \"####\" before a final answer")
    return parts[1].strip().replace(",", "")


SOURCES = (
    Source(
        name="gsm8k",
        hub="openai/gsm8k",
        subsets=("main",),
        columns=("question", "answer"),
        question=lambda row: text(row, "question"),
        gold=gold,
    ),
)
