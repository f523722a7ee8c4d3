"""The questions of a task's split, and the prompts that the policy sees. Validation questions come
from train, so that no checkpoint is chosen on the test set; rows with long prompts are dropped."""

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from pods import ranks
from pods.config import keys
from pods.config.errors import UserError
from pods.config.paths import CONFIG_DIR, user_cache
from pods.files import DAY, remove_old
from pods.tasks import arithmetic, chemistry, gsm8k, math, own, review, word_sums
from pods.tasks.files import json_lines
from pods.tasks.gold import Located
from pods.tasks.prompts import SYSTEM, encode_prompts, render_prompt
from pods.tasks.task import Task, hub_rows, read, say_once

if TYPE_CHECKING:
    from datasets import Dataset
    from pyarrow import Table
    from transformers import PreTrainedTokenizerBase

BUILT_IN = (gsm8k.TASK, *math.TASKS, chemistry.TASK, *arithmetic.TASKS, word_sums.TASK)
TASKS = {task.name: task for task in BUILT_IN}
NAMES = (*TASKS, "own")
SPLITS = ("train", "validation", "test")
BATCH = 1000  # questions that are tokenized at once
CACHED_FROM = 50_000  # questions whose prompts are kept on the disk
VALIDATION_SEED = 42  # fixed: runs with different seeds must not train on each other's validation


def problems(task: keys.TaskKeys) -> Iterator[str]:
    """Every broken rule between the task's keys, one line each; reads no data."""
    if task.name not in NAMES:
        yield f"task={task.name}: unknown; one of {', '.join(NAMES)}"
    for key, description in own.NEEDED.items():
        value = getattr(task, key)
        if task.name == "own" and not value:
            yield f"task.{key}={value}: task=own needs it; set {description}"
    for key in (*own.NEEDED, *own.DIVISION):
        value = getattr(task, key)
        if task.name != "own" and value is not None:
            yield f"task.{key}={value}: only task=own has this key; remove it or set task=own"


def renamed(task: keys.TaskKeys, name: str) -> keys.TaskKeys:
    """The same settings of prompts for another task, without the keys of task=own."""
    if name == task.name:
        return task
    removed = dict.fromkeys((*own.NEEDED, *own.DIVISION))
    return task.model_copy(update={"name": name, **removed})


def kind_of(task: keys.TaskKeys) -> str:
    """How the task's answers are graded: math | choice."""
    return task.kind or TASKS[task.name].kind


def load(name: str, split: str, *, data_dir: str | None = None) -> "Dataset":
    """Every row of a task's split, with the keys of config/train.yaml; see `load_for`."""
    defaults = yaml.safe_load((CONFIG_DIR / "train.yaml").read_text())["task"]
    return load_for(keys.TaskKeys(**{**defaults, "name": name}), split, data_dir)


def load_for(
    task: keys.TaskKeys, split: str, data_dir: str | None = None, facts: Task | None = None
) -> "Dataset":
    """Every row of a split: id, question, answer (the gold one), kind, and the data set's columns.

    Columns called like one of ours, or like what rewards get beside columns (task.TAKEN), are left
    out; mixed numbers become floats. Rows come from `data_dir` (or PODS_DATA_DIR), else the hub;
    UserError names the key, or the line. facts: the task's definition, to read two splits of it.
    """
    facts = facts or definition(task)
    if split not in SPLITS:
        raise UserError(f"split={split}: unknown; one of {', '.join(SPLITS)}")
    needed = "test" if split == "test" else "train"  # from which validation is carved
    if not {split, needed} & facts.splits.keys():
        remedy = "name another task"
        if task.name == "own":
            remedy = f"give {needed}.jsonl in a folder, or one file of at least 5 rows"
        raise UserError(
            f"task={task.name}: has no {split} split "
            f"(its splits: {', '.join(facts.splits) or 'none'}); {remedy}"
        )
    data_dir = data_dir or os.environ.get("PODS_DATA_DIR")
    if split == "test" or "validation" in facts.splits:
        return read(facts, split, rows_of_split(facts, split, data_dir))
    training = read(facts, "train", rows_of_split(facts, "train", data_dir))
    return _carved(facts, training, split, task)


def rows_of_split(facts: Task, split: str, data_dir: str | None) -> Iterable[Located]:
    """The rows of a task's own source, of data_dir/<task>/<split>.jsonl, or of the hub."""
    if facts.rows:
        return facts.rows(split)
    file = f"{facts.folder}/{split}.jsonl"
    if not data_dir:
        return hub_rows(facts, split, file)
    return json_lines(
        Path(data_dir) / file,
        remedy=f"put the rows of {facts.hub} there, or unset data_dir to use the hub",
    )


def definition(task: keys.TaskKeys) -> Task:
    """The task of these keys. UserError names a key."""
    for problem in problems(task):
        raise UserError(problem)
    return own.define(task) if task.name == "own" else TASKS[task.name]


def _carved(task: Task, dataset: "Dataset", split: str, config: keys.TaskKeys) -> "Dataset":
    """The validation questions or the rest of train; of a small file at most a fifth is carved."""
    most = config.validation_size
    if task.shuffle_seed is not None:
        dataset = dataset.shuffle(seed=task.shuffle_seed)
    count = len(dataset)
    size = min(most, count // 5)
    if size < most:
        say_once(
            f"task={task.name}: {size} of the {count} training questions are its validation split; "
            f"task.validation_size={most} is more than a fifth of them"
        )
    if split == "validation" and size == 0:
        raise UserError(
            f"task.validation_size={most}: leaves no validation questions of {count}; "
            "set at least 1, and give 5 training questions for each"
        )
    if task.name == "own":  # it may get further rows
        own.refuse_absent_column(config, dataset.column_names)
        values = dataset[config.stratify] if config.stratify else None
        chosen = own.chosen_by_digest(dataset["question"], size, values)
    else:
        chosen = {*np.random.default_rng(VALIDATION_SEED).permutation(count)[:size].tolist()}
    is_asked = split == "validation"
    return dataset.select([i for i in range(count) if (i in chosen) == is_asked])


def render_for(
    question: str,
    tokenizer: "PreTrainedTokenizerBase",
    task: keys.TaskKeys,
    model: keys.ModelKeys,
) -> str:
    """The prompt of a question under a config, by default with the system text of the task's kind.
    Raises UserError for a variable that the model's template does not have."""
    system = task.system
    if system is None:
        system = SYSTEM[kind_of(task)][task.style]
    if task.style == "instruct" and model.system:
        system = f"{model.system}\n{system}"
    for name in model.chat_template_kwargs:
        if name not in str(tokenizer.chat_template):  # which would ignore it
            raise UserError(
                f"model.chat_template_kwargs={model.chat_template_kwargs}: the template of "
                f"{model.path} has no {name}; correct or remove it"
            )
    return render_prompt(
        question,
        tokenizer=tokenizer,
        style=task.style,
        system=system,
        date=task.date,
        **model.chat_template_kwargs,
    )


def read_prompts(
    config: keys.TrainConfig,
    task: keys.TaskKeys,
    split: str,
    tokenizer: "PreTrainedTokenizerBase",
    facts: Task | None = None,
) -> tuple["Dataset", int]:
    """The rows whose `prompt` has at most max_prompt_length tokens, with `prompt` and `prompt_ids`;
    and the number of rows that were too long."""
    import datasets
    import pyarrow.compute
    from datasets.fingerprint import generate_random_fingerprint

    datasets.disable_progress_bars()
    dataset = load_for(task, split, config.data_dir, facts)
    render = partial(render_for, tokenizer=tokenizer, task=task, model=config.model)
    settings = [kind_of(task), task.model_dump(), config.model.model_dump()]
    columns = rendered(dataset.select_columns("question"), render, tokenizer, settings)
    # In one piece, each row would become a chunk of the table, of some kilobytes.
    parts = dataset.with_format("arrow").iter(BATCH)
    table = pyarrow.concat_tables([part.combine_chunks() for part in parts])
    for name in columns.column_names:
        table = table.append_column(name, columns[name])
    # A random fingerprint: otherwise datasets hashes every token, half of the time of a start.
    dataset = datasets.Dataset(table, fingerprint=generate_random_fingerprint())
    lengths = pyarrow.compute.list_value_length(columns["prompt_ids"]).to_numpy()
    short = np.flatnonzero(lengths <= config.sampling.max_prompt_length)
    dropped = len(lengths) - len(short)
    if dropped:
        dataset = dataset.select(short, new_fingerprint=generate_random_fingerprint())
    return dataset, dropped


def rendered(
    questions: "Dataset",
    render: Callable[[str], str],
    tokenizer: "PreTrainedTokenizerBase",
    settings: list,
) -> "Table":
    """The columns prompt and prompt_ids of these questions. Those of a large data set are rendered
    once into the user's cache and memory-mapped.

    settings: what else determines a prompt.
    """
    import datasets
    import transformers
    from datasets import Features, List, Value

    def encoded(batch: dict[str, list]) -> dict[str, list]:
        prompts = [render(question) for question in batch["question"]]
        return {"prompt": prompts, "prompt_ids": encode_prompts(prompts, tokenizer)}

    encode = partial(
        questions.map,
        encoded,
        batched=True,
        batch_size=BATCH,
        remove_columns="question",
        features=Features({"prompt": Value("string"), "prompt_ids": List(Value("int32"))}),
        new_fingerprint="prompts",  # else datasets hashes the tokenizer with all that it holds
    )
    tables = getattr(tokenizer, "backend_tokenizer", None)
    if len(questions) < CACHED_FROM or tables is None:
        return encode(keep_in_memory=True).data.table
    code = [inspect.getsource(function) for function in (render_prompt, encode_prompts)]
    versions = [transformers.__version__, datasets.__version__, code, SYSTEM]
    special = [tokenizer.chat_template, tokenizer.bos_token, tables.to_str()]
    digest = hashlib.sha256(json.dumps([settings, versions, special], default=str).encode())
    for batch in questions.iter(BATCH):
        digest.update(json.dumps(batch["question"]).encode())
    path = user_cache() / f"prompts-{digest.hexdigest()[:32]}.arrow"
    try:
        if not path.is_file():
            ranks.say(f"{len(questions)} prompts are tokenized, once, into {path}")
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_old(path.parent, "prompts-*.arrow", seconds=30 * DAY)
        return encode(cache_file_name=str(path)).data.table
    except OSError as error:  # a cluster's home may be full or read-only
        ranks.say(f"{path}: cannot be written ({error.strerror}); at every start, then")
        return encode(keep_in_memory=True).data.table


def load_prompts(
    config: keys.TrainConfig,
    tokenizer: "PreTrainedTokenizerBase",
    grade: review.Grade | None = None,
) -> "Dataset":
    """The prompts of a training; UserError if too few questions are left, or if most gold answers
    cannot be met. grade: None for data that were looked at before."""
    facts = definition(config.task)
    prompts, dropped = read_prompts(config, config.task, "train", tokenizer, facts)
    key = f"sampling.max_prompt_length={config.sampling.max_prompt_length}"
    source = f"{config.task.name}/train"
    count = len(prompts)
    if dropped:
        ranks.say(
            f"{source}: {dropped} of {dropped + count} questions dropped, longer than {key} tokens"
        )
    if count < config.prompts_per_step:
        remedy = f"raise {key}" if dropped else f"set at most {count}, or give more questions"
        raise UserError(
            f"prompts_per_step={config.prompts_per_step}: {source} has {count} questions; {remedy}"
        )
    if grade is not None and keys.reward_weights(config.rewards).get("correctness"):
        review.refuse_unmet_golds(config, prompts, grade)
        review.refuse_contradictions(config.task.name, prompts)
    if grade is not None and "test" in facts.splits:
        try:
            test = load_for(config.task, "test", config.data_dir, facts)
            review.say_overlap(config.task.name, prompts, test)
        except UserError as error:  # which the evaluation will meet
            ranks.say(f"test questions are not compared with those of the training: {error}")
    if config.trial and ranks.is_main():
        first = prompts[0]
        ids = first["prompt_ids"]
        tokens = f"{len(ids)} tokens, {ids.count(tokenizer.bos_token_id)} of them BOS"
        text = ranks.printable(first["prompt"])
        print(f"first of {count} prompts, {tokens}:\n{text}", flush=True)
    return prompts
