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
    rows = tasks.load(
        task.name,
        split,
        data_dir=config.data_dir,
        legacy_gold=task.legacy_gold,
        validation_size=task.validation_size,
    )
    return tasks.within_length(rows, tokenizer, config.sampling.max_prompt_length, task)


def load_prompts(config: TrainConfig, tokenizer: Any, split: str = "train") -> Dataset:
    """What a training draws from; raises UserError where too few questions are left."""
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
