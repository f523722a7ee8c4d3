"""Competition mathematics: task `math` (EleutherAI/hendrycks_math), 7,500 train and 5,000 test, and
three test sets: `math500`, 500 of MATH's test split; `amc23`, 40 of AMC 12; `aime24`, 30 of AIME.

{"problem": "If $\\det \\mathbf{A} = 2$ ...", "solution": "We have that ... = \\boxed{24}."}

MATH's gold answer is the last \\boxed{...} of the solution, with balanced braces; `math_published`
ends it at the first "}", as published, so that no answer to 15 % of the questions is correct.
"""

import re
from dataclasses import replace

from pods.batch import Row
from pods.tasks.task import Task, text, text_or_number

SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory",
    "prealgebra", "precalculus",
)  # fmt: skip
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # \{ and \} are characters, not braces
BOXED = re.compile(r"\\(?:boxed|fbox)\{")
UNBRACED = re.compile(r"\\boxed\s+([^\s${}.]+)")  # a few solutions write \boxed 5


def boxed(row: Row, column: str) -> str:
    """The content of the last \\boxed{...}. ValueError without one or with open braces."""
    content = after_last_box(row, column)
    depth = 1
    for token in BRACE.finditer(content):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return content[: token.start()].strip()
    raise ValueError(f"the last \\boxed{{ of column {column!r} is never closed")


def boxed_as_published(row: Row, column: str) -> str:
    """The content of the last \\boxed{...} up to the first "}"."""
    return after_last_box(row, column).split("}")[0].strip()


def after_last_box(row: Row, column: str) -> str:
    """The solution from the last \\boxed{ on; of one written \\boxed 5 its content, closed."""
    solution = text(row, column)
    boxes = list(BOXED.finditer(solution))
    if boxes:
        return solution[boxes[-1].end() :]
    unbraced = UNBRACED.findall(solution)
    if unbraced:
        return unbraced[-1] + "}"
    raise ValueError(f"column {column!r} has no \\boxed{{...}}")


def evaluation_set(name: str, hub: str, question: str, split: str = "test") -> Task:
    """A test set with its gold answers in a column, as text or as a number (8.0 for 8)."""
    return Task(
        name=name,
        hub=hub,
        splits={"test": split},
        question=lambda row: text(row, question),
        gold=lambda row: text_or_number(row, "answer"),
    )


MATH = Task(
    name="math",
    hub="EleutherAI/hendrycks_math",
    subsets=SUBJECTS,
    question=lambda row: text(row, "problem"),
    gold=lambda row: boxed(row, "solution"),
    shuffle_seed=42,
)
TASKS = (
    MATH,
    replace(
        MATH,
        name="math_published",
        source="math",
        gold=lambda row: boxed_as_published(row, "solution"),
    ),
    evaluation_set("math500", "HuggingFaceH4/MATH-500", "problem"),
    evaluation_set("amc23", "zwhe99/amc23", "question"),
    evaluation_set("aime24", "HuggingFaceH4/aime_2024", "problem", "train"),  # its only split
)
