"""Competition mathematics: task `math` (EleutherAI/hendrycks_math), 7,500 train and 5,000 test, and
three test sets: `math500`, 500 of MATH's test split; `amc23`, 40 of AMC 12; `aime24`, 30 of AIME.

{"problem": "If $\\det \\mathbf{A} = 2$ ...", "solution": "We have that ... = \\boxed{24}."}

MATH's gold answer is the last \\boxed{...} of the solution, with balanced braces; `legacy` ends it
at the first "}", as published, so that no answer to 15 % of the questions is correct.
"""

import re

from pods.tasks.task import Row, Task, text, text_or_number

SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory",
    "prealgebra", "precalculus",
)  # fmt: skip
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # \{ and \} are characters, not braces
BOXED = re.compile(r"\\(?:boxed|fbox)\{")
UNBRACED = re.compile(r"\\boxed\s+([^\s${}.]+)")  # a few solutions write \boxed 5


def boxed(row: Row, column: str, legacy: bool = False) -> str:
    """The content of the last \\boxed{...}. ValueError without one or with open braces."""
    solution = text(row, column)
    starts, unbraced = [box.end() for box in BOXED.finditer(solution)], UNBRACED.findall(solution)
    if not starts and unbraced:
        return unbraced[-1]
    if not starts:
        raise ValueError(f"column {column!r} has no \\boxed{{...}}")
    if legacy:
        return solution[starts[-1] :].split("}")[0].strip()
    depth = 1
    for token in BRACE.finditer(solution, starts[-1]):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return solution[starts[-1] : token.start()].strip()
    raise ValueError(f"the last \\boxed{{ of column {column!r} is never closed")


def evaluation_set(name: str, hub: str, question: str, split: str = "test") -> Task:
    """A test set with its gold answers in a column, as text or as a number (8.0 for 8)."""
    return Task(
        name=name,
        hub=hub,
        splits={"test": split},
        question=lambda row: text(row, question),
        gold=lambda row, legacy: text_or_number(row, "answer"),
    )


TASKS = (
    Task(
        name="math",
        hub="EleutherAI/hendrycks_math",
        subsets=SUBJECTS,
        question=lambda row: text(row, "problem"),
        gold=lambda row, legacy: boxed(row, "solution", legacy),
        shuffle_seed=42,
    ),
    evaluation_set("math500", "HuggingFaceH4/MATH-500", "problem"),
    evaluation_set("amc23", "zwhe99/amc23", "question"),
    evaluation_set(
        "aime24", "HuggingFaceH4/aime_2024", "problem", split="train"
    ),  # the hub has no other
)
