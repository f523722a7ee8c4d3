"""The text that the policy sees: a system text, a question, and the model's chat template.

Questions become prompts; those that are too long are dropped and counted.
"""

from typing import TYPE_CHECKING

from pods import ranks
from pods.config.errors import UserError
from pods.config.keys import Task, TrainConfig
from pods.tasks.splits import load_for, system_texts
from pods.tasks.task import MATH

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase


def render_prompt(
    question: str, *, tokenizer: "PreTrainedTokenizerBase", style: str = "instruct",
    system: str | None = None, date: str | None = None,
) -> str:  # fmt: skip
    """The prompt as text. `system` None: the published mathematics text; "": none at all.

    `date` replaces today's date in a template that prints it, so that runs agree across days.
    """
    if style not in MATH:
        raise UserError(f"task.style={style}: unknown; one of {', '.join(MATH)}")
    system = MATH[style] if system is None else system
    if style == "base":
        return f"{system}Problem: {question}\nSolution: "
    if not tokenizer.chat_template:
        raise UserError(
            "task.style=instruct: the tokenizer has no chat template; use task.style=base"
        )
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    options = {} if date is None else {"date_string": date}
    options |= {"tokenize": False, "add_generation_prompt": True}
    return tokenizer.apply_chat_template(messages, **options)


def encode_prompt(prompt: str, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Token ids of a rendered prompt."""
    return encode_prompts([prompt], tokenizer)[0]


def encode_prompts(prompts: list[str], tokenizer: "PreTrainedTokenizerBase") -> list[list[int]]:
    """Token ids of rendered prompts, with exactly one BOS each if the tokenizer has one.

    Llama's template writes the BOS as text and its tokenizer adds another: the published evaluation
    had two BOS, the published training one.
    """
    encoded = tokenizer(prompts, add_special_tokens=False)["input_ids"] if prompts else []
    bos = [tokenizer.bos_token_id]
    if list(tokenizer("")["input_ids"])[:1] != bos:
        return encoded
    return [ids if ids[:1] == bos else bos + ids for ids in encoded]


def read_prompts(
    config: TrainConfig, task: Task, split: str, tokenizer: "PreTrainedTokenizerBase"
) -> tuple["Dataset", int]:
    """The rows of a split with a `prompt` column, and how many were too long."""
    from datasets import disable_progress_bars

    disable_progress_bars()
    rows = load_for(task, split, config.data_dir)
    return within_length(rows, tokenizer, config.sampling.max_prompt_length, task)


def within_length(
    dataset: "Dataset", tokenizer: "PreTrainedTokenizerBase", max_prompt_length: int, task: Task
) -> tuple["Dataset", int]:
    """The rows with a `prompt` column of at most `max_prompt_length` tokens, and how many were too
    long."""
    prompts = [rendered(question, tokenizer, task) for question in dataset["question"]]
    lengths = list(map(len, encode_prompts(prompts, tokenizer)))
    short = [index for index, length in enumerate(lengths) if length <= max_prompt_length]
    return dataset.add_column("prompt", prompts).select(short), len(prompts) - len(short)


def rendered(question: str, tokenizer: "PreTrainedTokenizerBase", task: Task) -> str:
    """The prompt of a question, as text."""
    system = system_texts(task)[task.style] if task.system is None else task.system
    keys = {"tokenizer": tokenizer, "style": task.style, "system": system, "date": task.date}
    return render_prompt(question, **keys)


def load_prompts(config: TrainConfig, tokenizer: "PreTrainedTokenizerBase") -> "Dataset":
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


def show_first(prompts: list[str], tokenizer: "PreTrainedTokenizerBase") -> None:
    """Print the first prompt as the policy sees it."""
    ids = encode_prompt(prompts[0], tokenizer)
    beginnings = ids.count(tokenizer.bos_token_id)
    print(f"first of {len(prompts)} prompts, {len(ids)} tokens, {beginnings} of them BOS:")
    print(prompts[0], flush=True)
