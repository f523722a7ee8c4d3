"""Stage 1b: questions -> the prompts that the policy sees, too long ones dropped and counted."""

from typing import Any

from datasets import Dataset, disable_progress_bars

from pods import distributed, tasks
from pods.cli import UserError
from pods.config import Task, TrainConfig


def read_prompts(
    config: TrainConfig, task: Task, split: str, tokenizer: Any
) -> tuple[Dataset, int]:
    """The rows of a split with a `prompt` column, and how many were too long."""
    disable_progress_bars()
    rows = tasks.load_for(task, split, config.data_dir)
    return within_length(rows, tokenizer, config.sampling.max_prompt_length, task)


def within_length(
    dataset: Dataset, tokenizer: Any, max_prompt_length: int, task: Task
) -> tuple[Dataset, int]:
    """The rows whose prompt has at most `max_prompt_length` tokens, with a `prompt` column, and how
    many rows were too long.
    """
    system = tasks.system_texts(task)[task.style] if task.system is None else task.system
    prompts = [
        tasks.render_prompt(
            question, tokenizer=tokenizer, style=task.style, system=system, date=task.date
        )
        for question in dataset["question"]
    ]
    short = [
        index
        for index, prompt in enumerate(prompts)
        if len(tasks.encode_prompt(prompt, tokenizer)) <= max_prompt_length
    ]
    kept = dataset.select(short).add_column("prompt", [prompts[index] for index in short])
    return kept, len(prompts) - len(short)


def load_prompts(config: TrainConfig, tokenizer: Any, split: str = "train") -> Dataset:
    """The prompts of a training; raises UserError if too few questions are left."""
    task, limit = config.task, config.sampling.max_prompt_length
    prompts, dropped = read_prompts(config, task, split, tokenizer)
    if dropped:
        distributed.say(
            f"{task.name}/{split}: {dropped} of {dropped + len(prompts)} questions dropped, longer "
            f"than sampling.max_prompt_length={limit} tokens"
        )
    needed = config.prompts_per_step
    if len(prompts) < needed:
        raise UserError(
            f"sampling.max_prompt_length={limit}: {len(prompts)} "
            f"questions of {task.name}/{split} are left, prompts_per_step={needed} are needed; "
            "raise the limit"
        )
    return prompts
