"""Questions with gold answers, and the prompts that the policy sees. Validation questions come from
train, so that no checkpoint is chosen on the test set; only rows with long prompts are dropped."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import yaml

from pods import ranks
from pods.config import keys
from pods.config.errors import UserError
from pods.tasks import arithmetic, chemistry, gsm8k, math, own
from pods.tasks.prompts import SYSTEM, encode_prompt, encode_prompts, render_prompt
from pods.tasks.task import Task, read

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

TASKS = {task.name: task for task in (gsm8k.TASK, *math.TASKS, chemistry.TASK, arithmetic.TASK)}
NAMES = (*TASKS, "own")
SPLITS = ("train", "validation", "test")
VALIDATION_SEED = 42  # fixed: runs with different seeds must not train on each other's validation


def problems(task: keys.Task) -> Iterator[str]:
    """Every broken rule between the task's keys, one line each; reads no data."""
    if task.name not in NAMES:
        yield f"task={task.name}: unknown; one of {', '.join(NAMES)}"
    for key, description in own.NEEDED.items():
        value = getattr(task, key)
        if task.name == "own" and not value:
            yield f"task.{key}={value}: task=own needs it; set {description}{own.columns(task)}"
        elif task.name != "own" and value is not None:
            yield f"task.{key}={value}: only task=own has this key; remove it or set task=own"


def renamed(task: keys.Task, name: str) -> keys.Task:
    """The config for another task: prompts as here, without the keys of task=own."""
    changes = {"name": name, **dict.fromkeys(own.NEEDED)}
    return task if name == task.name else task.model_copy(update=changes)


def load(name: str, split: str, *, data_dir: str | None = None) -> "Dataset":
    """Every row of a task's split, with the keys of config/task/_shared.yaml; see `load_for`."""
    shared = yaml.safe_load((keys.CONFIG_DIR / "task" / "_shared.yaml").read_text())
    return load_for(keys.Task(**shared | {"name": name}), split, data_dir)


def load_for(task: keys.Task, split: str, data_dir: str | None = None) -> "Dataset":
    """Every row of a split: id, question, answer (the gold one), kind, and the data set's columns.

    Columns called like one of ours, or `prompt`, are left out; mixed numbers become floats. Rows
    come from `data_dir` (or PODS_DATA_DIR), else the hub; UserError names the key, or the line.
    """
    for problem in problems(task):
        raise UserError(problem)
    if split not in SPLITS:
        raise UserError(f"split={split}: unknown; one of {', '.join(SPLITS)}")
    facts = own.define(task) if task.name == "own" else TASKS[task.name]
    if (needed := "test" if split == "test" else "train") not in facts.splits:
        remedy = f"give {needed}.jsonl in a folder, or one file of at least 5 rows"
        remedy = remedy if task.name == "own" else "name another task"
        line = f"has no {split} split (its splits: {', '.join(facts.splits) or 'none'}); {remedy}"
        raise UserError(f"task={task.name}: {line}")
    carved = split != "test" and "validation" not in facts.splits
    data_dir = data_dir or os.environ.get("PODS_DATA_DIR")
    dataset = read(facts, "train" if carved else split, data_dir, task.legacy_gold)
    return _carved(facts, dataset, split, task.validation_size) if carved else dataset


def _carved(task: Task, dataset: "Dataset", split: str, most: int) -> "Dataset":
    """The validation questions or the rest of train; of a small file at most a fifth is carved."""
    if task.shuffle_seed is not None:
        dataset = dataset.shuffle(seed=task.shuffle_seed)
    count, size = len(dataset), min(most, len(dataset) // 5)
    if size < most:
        line = f"task.validation_size={most} is more than a fifth of the {count} training questions"
        ranks.say(f"task={task.name}: {line}; {size} are carved")
    if split == "validation" and size == 0:
        remedy = "set at least 1, and give 5 training questions for each"
        line = f"task.validation_size={most}: leaves no validation questions of {count}; {remedy}"
        raise UserError(line)
    order = np.random.default_rng(VALIDATION_SEED).permutation(count)
    return dataset.select(sorted(order[:size] if split == "validation" else order[size:]))


def rendered(
    question: str, tokenizer: "PreTrainedTokenizerBase", task: keys.Task, model: keys.Model
) -> str:
    system, variables, style = task.system, model.chat_template_kwargs, task.style
    if system is None:
        system = SYSTEM[task.kind or TASKS[task.name].kind][style]
    if style == "instruct" and model.system:
        system = f"{model.system}\n{system}"
    for name in variables:
        if name not in str(tokenizer.chat_template):  # which would ignore it
            line = f"model.chat_template_kwargs={variables}: the template of {model.path}"
            raise UserError(f"{line} has no {name}; correct or remove it")
    texts = {"style": style, "system": system, "date": task.date}
    return render_prompt(question, tokenizer=tokenizer, **texts, **variables)


def read_prompts(
    config: keys.TrainConfig, task: keys.Task, split: str, tokenizer: "PreTrainedTokenizerBase"
) -> tuple["Dataset", int]:
    """The rows with a `prompt` of at most max_prompt_length tokens; how many were too long."""
    import datasets

    datasets.disable_progress_bars()
    dataset, limit = load_for(task, split, config.data_dir), config.sampling.max_prompt_length
    prompts = [rendered(text, tokenizer, task, config.model) for text in dataset["question"]]
    short = [i for i, ids in enumerate(encode_prompts(prompts, tokenizer)) if len(ids) <= limit]
    return dataset.add_column("prompt", prompts).select(short), len(prompts) - len(short)


def load_prompts(config: keys.TrainConfig, tokenizer: "PreTrainedTokenizerBase") -> "Dataset":
    """The prompts of a training; raises UserError if too few questions are left."""
    prompts, dropped = read_prompts(config, config.task, "train", tokenizer)
    key = f"sampling.max_prompt_length={config.sampling.max_prompt_length}"
    source, count, needed = f"{config.task.name}/train", len(prompts), config.prompts_per_step
    if dropped:
        total = dropped + count
        ranks.say(f"{source}: {dropped} of {total} questions dropped, longer than {key} tokens")
    if count < needed:
        line = f"{count} questions of {source} are left, prompts_per_step={needed} are needed"
        raise UserError(f"{key}: {line}; raise the limit")
    if config.trial and ranks.is_main():
        ids = encode_prompt(first := prompts[0]["prompt"], tokenizer)
        tokens = f"{len(ids)} tokens, {ids.count(tokenizer.bos_token_id)} of them BOS"
        print(f"first of {count} prompts, {tokens}:\n{first}", flush=True)
    return prompts
