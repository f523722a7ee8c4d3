"""Competition mathematics: task `math` (EleutherAI/hendrycks_math), 7,500 train and 5,000 test, and
three test sets: `math500`, 500 of MATH's test split; `amc23`, 40 of AMC 12; `aime24`, 30 of AIME.

{"problem": "If $\\det \\mathbf{A} = 2$ ...", "solution": "We have that ... = \\boxed{24}."}

MATH's gold answer is the last \\boxed{...} of the solution, with balanced braces; `math_published`
ends it at the first "}", as published, so that no answer to 15 % of the questions is correct.
"""

from dataclasses import replace

from pods.tasks.gold import boxed, boxed_as_published, text_or_number
from pods.tasks.task import Task

SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory",
    "prealgebra", "precalculus",
)  # fmt: skip


def evaluation_set(name: str, hub: str, question: str, split: str = "test") -> Task:
    """A test set with its gold answers in a column, as text or as a number (8.0 for 8)."""
    return Task(
        name=name,
        hub=hub,
        splits={"test": split},
        question=question,
        answer="answer",
        gold=text_or_number,
    )


MATH = Task(
    name="math",
    hub="EleutherAI/hendrycks_math",
    subsets=SUBJECTS,
    question="problem",
    answer="solution",
    gold=boxed,
    shuffle_seed=42,
)
TASKS = (
    MATH,
    replace(MATH, name="math_published", source="math", gold=boxed_as_published),
    evaluation_set("math500", "HuggingFaceH4/MATH-500", "problem"),
    evaluation_set("amc23", "zwhe99/amc23", "question"),
    evaluation_set("aime24", "HuggingFaceH4/aime_2024", "problem", "train"),  # its only split
)
