"""Task `chemistry`: SciKnowEval (hicai-zju), Chemistry, level L3, multiple choice: 1,890 / 210.

The paper's own chemistry set is not published; this stands in for it and results must be labelled
"chemistry (SciKnowEval L3)". The 90/10 split with seed 42 is that of the public SDPO code.

{"question": "How many rotatable bonds are there in ...?", "answerKey": "D", "choices": {"text":
 ["10", "9", "8", "2"], "label": ["A", "B", "C", "D"]}, "domain": "Chemistry", ...}
"""

from typing import TYPE_CHECKING

from pods.batch import Row
from pods.tasks.gold import column, text
from pods.tasks.task import Task

if TYPE_CHECKING:
    from datasets import Dataset


def with_options(row: Row, name: str) -> str:
    """The question with its options below it, one a line."""
    choices = column(row, "choices")
    lines = [text(row, name)]
    for label, option in zip(choices["label"], choices["text"], strict=True):
        lines.append(f"{label}. {option}")
    return "\n".join(lines)


def letter(row: Row, name: str) -> str:
    """The letter of the correct option."""
    key = text(row, name).strip()
    if key not in row["choices"]["label"]:
        raise ValueError(f"{name} {key!r} is none of the labels {row['choices']['label']}")
    return key


def select(dataset: "Dataset", split: str) -> "Dataset":
    """Our split of the hub's only one, which holds every domain."""

    def multiple_choice(row: Row) -> bool:
        chemistry = row["domain"] == "Chemistry" and row["details"]["level"] == "L3"
        return chemistry and row["type"] in ("mcq-4-choices", "mcq-2-choices")

    return dataset.filter(multiple_choice).train_test_split(test_size=0.1, seed=42)[split]


TASK = Task(
    name="chemistry",
    hub="hicai-zju/SciKnowEval",
    splits={"train": "test", "test": "test"},
    select=select,
    question="question",
    question_of=with_options,
    answer="answerKey",
    gold=letter,
    kind="choice",
)
