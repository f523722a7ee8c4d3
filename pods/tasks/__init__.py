"""Questions with gold answers, and the prompts that the policy sees: one file a task, and
`load(name, split)` and `render_prompt(question, tokenizer=...)` for everybody."""

from pods.tasks.prompts import encode_prompts, render_prompt
from pods.tasks.splits import (
    NAMES,
    SPLITS,
    TASKS,
    kind_of,
    load,
    load_for,
    load_prompts,
    problems,
    read_prompts,
    renamed,
    render_for,
)

__all__ = [
    "NAMES",
    "SPLITS",
    "TASKS",
    "encode_prompts",
    "kind_of",
    "load",
    "load_for",
    "load_prompts",
    "problems",
    "read_prompts",
    "renamed",
    "render_for",
    "render_prompt",
]
