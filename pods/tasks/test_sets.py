"""Test sets of mathematics: nothing is trained on them.

aime24: the 30 problems of AIME 2024; amc23: the 40 of AMC 12 2023; math500: 500 of MATH's own test
split.
"""

from pods.tasks.task import Task, completion, text, text_or_number

MATH500 = Task(
    name="math500",
    hub="HuggingFaceH4/MATH-500",
    splits={"test": "test"},
    question=lambda row: text(row, "problem"),
    gold=lambda row, legacy: text_or_number(row, "answer"),
    example={"problem": "How many positive whole-number divisors does 196 have?", "answer": "9"},
    right=completion("196 = 2^2 * 7^2, so 3 * 3 divisors.", "9"),
    wrong=completion("196 = 2^2 * 7^2, so 2 * 2 divisors.", "4"),
)
AMC23 = Task(
    name="amc23",
    hub="zwhe99/amc23",
    splits={"test": "test"},
    question=lambda row: text(row, "question"),
    gold=lambda row, legacy: text_or_number(row, "answer"),  # the column holds 8.0 for 8
    example={
        "id": 18,
        "question": "How many positive perfect squares less than $2023$ are divisible by $5$?",
        "answer": 8.0,
    },
    right=completion("5^2, 10^2, ..., 40^2 = 1600; 45^2 = 2025 is too large.", "8"),
    wrong=completion("5^2, 10^2, ..., 45^2.", "9"),
)
AIME24 = Task(
    name="aime24",
    hub="HuggingFaceH4/aime_2024",
    splits={"test": "train"},  # the hub calls all of it train
    question=lambda row: text(row, "problem"),
    gold=lambda row, legacy: text_or_number(row, "answer"),
    example={
        "id": 72,
        "problem": "Find the largest possible real part of \\[(75+117i)z+\\frac{96+144i}{z}\\]where"
        " $z$ is a complex number with $|z|=4$.",
        "answer": "540",
    },
    right=completion("The real part is 324 cos t - 432 sin t, at most 540.", "540"),
    wrong=completion("The real part is at most 324 + 432.", "756"),
)
TASKS = (MATH500, AMC23, AIME24)
