"""Task `aime24`: the 30 problems of AIME 2024 (HuggingFaceH4/aime_2024), a test set."""

from pods.tasks.task import Task, completion, text, text_or_number

TASK = Task(
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
