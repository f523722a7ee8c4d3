"""Task `chemistry`: SciKnowEval (hicai-zju), Chemistry, level L3, multiple choice: 1,890 / 210.

The paper's own chemistry set is not published; this stands in for it and results must be labelled
"chemistry (SciKnowEval L3)". The 90/10 split with seed 42 is that of the public SDPO code. One real
example: "What is the molar weight (g/mol) of the molecule with the canonical SMILES representation
'CC(C(=O)...'?" with the options A. 2270.700, B. 2249.700, C. 2185.500, D. 2149.500; gold "A".
"""

from collections.abc import Callable
from typing import Any

from pods.tasks.source import Row, Source, text

TYPES = ("mcq-4-choices", "mcq-2-choices")
SPLIT_SEED = 42
TEST_SHARE = 0.1


def question(row: Row) -> str:
    """The question with its options below it, one a line."""
    choices = row["choices"]
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


def from_hub(load: Callable[[str], Any], split: str) -> Any:
    """The hub has one split with every domain; ours is cut from it."""
    wanted = load("test").filter(
        lambda row: (
            row["domain"] == "Chemistry"
            and row["details"]["level"] == "L3"
            and row["type"] in TYPES
        )
    )
    return wanted.train_test_split(test_size=TEST_SHARE, seed=SPLIT_SEED)[split]


SOURCES = (
    Source(
        name="chemistry",
        hub="hicai-zju/SciKnowEval",
        columns=("question", "choices", "answerKey"),
        question=question,
        gold=gold,
        kind="choice",
        from_hub=from_hub,
    ),
)
