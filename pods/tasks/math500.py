"""Task `math500`: 500 problems of MATH's test split (HuggingFaceH4/MATH-500), a test set."""

from pods.tasks.task import Task, completion, text, text_or_number

TASK = Task(
    name="math500",
    hub="HuggingFaceH4/MATH-500",
    splits={"test": "test"},
    question=lambda row: text(row, "problem"),
    gold=lambda row, legacy: text_or_number(row, "answer"),
    example={"problem": "How many positive whole-number divisors does 196 have?", "answer": "9"},
    right=completion("196 = 2^2 * 7^2, so 3 * 3 divisors.", "9"),
    wrong=completion("196 = 2^2 * 7^2, so 2 * 2 divisors.", "4"),
)
