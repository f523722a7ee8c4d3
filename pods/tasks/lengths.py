"""Stage 1b: questions -> the prompts that the policy sees, too long ones dropped and counted."""

from typing import Any

from datasets import Dataset, disable_progress_bars

from pods import ranks, tasks
from pods.config.errors import UserError
from pods.config.keys import Task, TrainConfig


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
    """The rows with a `prompt` column of at most `max_prompt_length` tokens, and how many were too
    long."""
    prompts = [rendered(question, tokenizer, task) for question in dataset["question"]]
    lengths = list(map(len, tasks.encode_prompts(prompts, tokenizer)))
    short = [index for index, length in enumerate(lengths) if length <= max_prompt_length]
    return dataset.add_column("prompt", prompts).select(short), len(prompts) - len(short)


def rendered(question: str, tokenizer: Any, task: Task) -> str:
    """The prompt of a question, as text."""
    system = tasks.system_texts(task)[task.style] if task.system is None else task.system
    keys = {"tokenizer": tokenizer, "style": task.style, "system": system, "date": task.date}
    return tasks.render_prompt(question, **keys)


def load_prompts(config: TrainConfig, tokenizer: Any) -> Dataset:
    """The prompts of a training; raises UserError if too few questions are left."""
    limit, needed = config.sampling.max_prompt_length, config.prompts_per_step
    prompts, dropped = read_prompts(config, config.task, "train", tokenizer)
    key, source = f"sampling.max_prompt_length={limit}", f"{config.task.name}/train"
    if dropped:
        ranks.say(
            f"{source}: {dropped} of {dropped + len(prompts)} questions dropped, longer than {key}"
            " tokens"
        )
    if len(prompts) < needed:
        raise UserError(
            f"{key}: {len(prompts)} questions of {source} are left, prompts_per_step={needed} are "
            "needed; raise the limit"
        )
    if config.trial and ranks.is_main():
        show_first(prompts["prompt"], tokenizer)
    return prompts


def show_first(prompts: list[str], tokenizer: Any) -> None:
    """Print the first prompt as the policy sees it."""
    ids = tasks.encode_prompt(prompts[0], tokenizer)
    beginnings = ids.count(tokenizer.bos_token_id)
    print(f"first of {len(prompts)} prompts, {len(ids)} tokens, {beginnings} of them BOS:")
    print(prompts[0], flush=True)
