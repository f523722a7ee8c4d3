"""Task `chemistry`: SciKnowEval (hicai-zju), Chemistry, level L3, multiple choice: 1,890 / 210.

The paper's own chemistry set is not published; this stands in for it and results must be labelled
"chemistry (SciKnowEval L3)". The 90/10 split with seed 42 is that of the public SDPO code.
"""

from typing import Any

from pods.tasks.task import FORMAT, Row, Task, completion, text, value

CHOICE = {
    "instruct": """
You will be given a multiple-choice question.
Work out which option is right, checking every step.
"""
    + FORMAT.format(answer="Only the letter of the right option."),
    "base": """
A careful assistant solves the multiple-choice problem below. It first writes its working between
<think> and </think>, then only the letter of the right option between <answer> and </answer>.
""",
}


def question(row: Row) -> str:
    """The question with its options below it, one a line."""
    choices = value(row, "choices")
    if not isinstance(choices, dict) or not {"text", "label"} <= choices.keys():
        raise ValueError("column 'choices' must hold text and label lists")
    labels, options = choices["label"], choices["text"]
    if not labels or len(labels) != len(options):
        raise ValueError(f"column 'choices' has {len(labels)} labels for {len(options)} options")
    lines = [f"{label}. {option}" for label, option in zip(labels, options, strict=True)]
    return "\n".join([text(row, "question"), *lines])


def gold(row: Row, legacy: bool) -> str:
    """The letter of the right option."""
    key = text(row, "answerKey").strip()
    if key not in row["choices"]["label"]:
        raise ValueError(f"answerKey {key!r} is none of the labels {row['choices']['label']}")
    return key


def select(hub_rows: Any, split: str) -> Any:
    """Our split of the hub's only one, which holds every domain."""

    def wanted(row: Row) -> bool:
        chemistry = row["domain"] == "Chemistry" and row["details"]["level"] == "L3"
        return chemistry and row["type"] in ("mcq-4-choices", "mcq-2-choices")

    return hub_rows.filter(wanted).train_test_split(test_size=0.1, seed=42)[split]


TASK = Task(
    name="chemistry",
    hub="hicai-zju/SciKnowEval",
    splits={"train": "test", "test": "test"},
    select=select,
    question=question,
    gold=gold,
    system=CHOICE,
    kind="choice",
    example={
        "question": "How many rotatable bonds are there in the molecule with the canonical SMILES"
        " representation 'CC(C(CO)N)O'?",
        "choices": {"text": ["10", "9", "8", "2"], "label": ["A", "B", "C", "D"]},
        "answerKey": "D",
    },
    right=completion("Only the two C-C bonds inside the chain rotate: 2.", "D"),
    wrong=completion("Every bond of the chain rotates.", "C"),
)
