"""Questions with gold answers, and the prompts that the policy sees."""

from pods.tasks.own import renamed
from pods.tasks.prompts import encode_prompt, encode_prompts, render_prompt
from pods.tasks.splits import NAMES, SPLITS, TASKS, load, load_for, problems, system_texts
from pods.tasks.task import Task, completion

__all__ = [
    "NAMES", "SPLITS", "TASKS", "Task", "completion", "encode_prompt", "encode_prompts", "load",
    "load_for", "problems", "renamed", "render_prompt", "system_texts",
]  # fmt: skip
