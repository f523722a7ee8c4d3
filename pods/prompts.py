"""Stage 1b: questions -> the prompts that the policy sees, too long ones dropped and counted."""

from typing import Any

from datasets import Dataset, disable_progress_bars

from pods import distributed, tasks
from pods.cli import UserError
from pods.config import TrainConfig


def load_prompts(config: TrainConfig, tokenizer: Any, split: str = "train") -> Dataset:
    """The rows of a split with a `prompt` column, rendered and filtered as the config says."""
    disable_progress_bars()
    task = config.task
    rows = tasks.load(
        task.name,
        split,
        data_dir=config.data_dir,
        legacy_gold=task.legacy_gold,
        validation_size=task.validation_size,
    )
    limit = config.sampling.max_prompt_length
    prompts, dropped = tasks.within_length(rows, tokenizer, limit, task)
    if dropped:
        distributed.say(
            f"{task.name}/{split}: {dropped} of {len(rows)} questions dropped, longer than "
            f"sampling.max_prompt_length={limit} tokens"
        )
    needed = config.prompts_per_step
    if len(prompts) < needed:
        raise UserError(
            f"sampling.max_prompt_length={limit}: {len(prompts)} "
            f"questions of {task.name}/{split} are left, prompts_per_step={needed} are needed; "
            "raise the limit"
        )
    return prompts
