"""Task `amc23`: the 40 problems of AMC 12 2023 (zwhe99/amc23), a test set."""

from pods.tasks.task import Task, completion, text, text_or_number

TASK = Task(
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
