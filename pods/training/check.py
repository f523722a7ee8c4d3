"""The rules of a training config that span several keys; pods/config/keys.py has the others."""

import math
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from pods import by_name, ranks, tasks
from pods.config import functions
from pods.config.errors import UserError
from pods.config.keys import TrainConfig, reward_weights
from pods.models import locate
from pods.needs import Needs
from pods.rewards import FUNCTIONS
from pods.tasks import own


def settle(config: TrainConfig) -> None:
    """Set what follows from other keys, before `check`: an algorithm that trains on all n has m = n
    and a smaller kept_per_prompt means its micro-batch (paper, section 4); a micro-batch holds at
    most a rank's share of the step; a schedule follows what ends the run."""
    n, m = config.rollouts_per_prompt, config.kept_per_prompt
    needs = needs_of(config)
    if needs.keeps_all and not needs.draws_m and m < n:
        config.micro_batch_size = min(config.micro_batch_size, m)
        config.kept_per_prompt = n
    share = config.kept_per_prompt * config.prompts_per_step // ranks.world_size()
    config.micro_batch_size = min(config.micro_batch_size, max(1, share))
    optimizer, timed = config.optimizer, config.budget.train_seconds and not config.max_steps
    if optimizer.schedule_by is None:
        by_time = timed and optimizer.schedule != "constant"
        optimizer.schedule_by = "seconds" if by_time else "steps"


def check(config: TrainConfig) -> None:
    """Raise UserError with the first broken rule: key, value, rule, remedy in one line."""
    for rule in (algorithm, sizes, engine, task, rewards, end_and_schedule, names, files):
        for problem in rule(config):
            raise UserError(problem)


def algorithm(config: TrainConfig) -> Iterator[str]:
    """The algorithm, its rule and the advantage exist, take their parameters and are used."""
    for kind in ("rule", "advantage", "algorithm"):
        function = getattr(config, kind)
        try:
            by_name.prepared(kind, function.name, function.params)
        except ValueError as error:
            params = f" {kind}.params={function.params}" if function.params else ""
            yield f"{kind}.name={function.name}{params}: {error}"
    name, rule, advantage = config.algorithm.name, config.rule.name, config.advantage.name
    needs = needs_of(config)
    if not needs.takes_rule and rule not in ("all", "max_variance"):
        yield f"rule={rule}: algorithm={name} has no rule; leave rule out, or set algorithm=pods"
    if needs.own_advantages and advantage != "kept":
        yield f"advantage={advantage}: algorithm={name} has its own; leave advantage=kept"


def needs_of(config: TrainConfig) -> Needs:
    """What the algorithm needs of the run. Raises UserError if there is no such algorithm."""
    name = config.algorithm.name
    try:
        return by_name.needs_of_algorithm(name)
    except ValueError as error:
        raise UserError(f"algorithm.name={name}: {error}") from error


def sizes(config: TrainConfig) -> Iterator[str]:
    """n, m and micro-batch under the algorithm, the rule and the number of processes."""
    n, m, P = config.rollouts_per_prompt, config.kept_per_prompt, config.prompts_per_step
    name, size, count = config.algorithm.name, config.micro_batch_size, ranks.world_size()
    if m > n:
        yield f"kept_per_prompt={m}: cannot keep more than rollouts_per_prompt={n}; set {n} or less"
    needs = needs_of(config)
    if needs.draws_m and m != n:
        remedy = f"set {m}, as kept_per_prompt, or algorithm=pods"
        yield f"rollouts_per_prompt={n}: algorithm={name} trains on every rollout; {remedy}"
    if config.rule.name == "all" and needs.takes_rule and m != n:
        yield f"kept_per_prompt={m}: rule=all keeps every rollout; set {n}, or rule=max_variance"
    if m * P % count:
        shared = f"the {m * P} kept rollouts of a step must be shared equally by {count} processes"
        yield f"prompts_per_step={P}: {shared}; set a multiple of {count}"
    elif (share := m * P // count) % size:
        rows = f"kept_per_prompt={m} x prompts_per_step={P} / {count} processes = {share} rows"
        yield f"micro_batch_size={size}: must divide {rows}; set e.g. {math.gcd(size, share)}"


def engine(config: TrainConfig) -> Iterator[str]:
    """Keys that TRL's own generation does not have."""
    n, m, stop = config.rollouts_per_prompt, config.kept_per_prompt, config.sampling.stop
    mode = config.engine.vllm_mode if config.engine.name == "trl" else None
    if mode == "server" and n % m:
        yield f"rollouts_per_prompt={n}: a vLLM server returns {m} at a time; set a multiple of {m}"
    if mode == "none" and stop:
        yield f"sampling.stop={stop}: engine.vllm_mode=none has none; set sampling.stop=[]"


def task(config: TrainConfig) -> Iterator[str]:
    """The task's keys fit together, and the user's functions load."""
    yield from tasks.problems(config.task)
    for key, value in (("engine.name", config.engine.name), ("task.gold", config.task.gold)):
        if value and functions.is_path(value):
            functions.load(key, value)


def rewards(config: TrainConfig) -> Iterator[str]:
    """The user's functions load under free names, and a reward has a weight other than 0."""
    for name, path in config.rewards.functions.items():
        if name in FUNCTIONS or not name.isidentifier():
            rule = f"the name must be an identifier other than {', '.join(FUNCTIONS)}"
            yield f"rewards.functions.{name}={path}: {rule}; choose another name"
        functions.load(f"rewards.functions.{name}", path)
    known = (*FUNCTIONS, *config.rewards.functions)
    for name, weight in config.rewards.weights.items():
        if name not in known:
            remedy = f"define it with rewards.functions.{name}=path/to/file.py:function"
            rule = f"no such reward; one of {', '.join(known)}, or {remedy}"
            yield f"rewards.weights.{name}={weight}: {rule}"
    if not any(reward_weights(config.rewards).values()):
        yield f"rewards.weights={config.rewards.weights}: every weight is 0; set one above 0"


def end_and_schedule(config: TrainConfig) -> Iterator[str]:
    """A run has an end, and its schedule follows it; checkpoints and the end fall between two
    generations: others could not be resumed."""
    each, every = config.updates_per_generation, config.checkpoint.every_steps
    for key, count in (("max_steps", config.max_steps), ("checkpoint.every_steps", every)):
        if count is not None and count % each:
            remedy = f"set e.g. {count + -count % each}"
            yield f"{key}={count}: must be a multiple of updates_per_generation={each}; {remedy}"
    budget, schedule = config.budget, config.optimizer.schedule
    by_seconds, warmup = config.optimizer.schedule_by == "seconds", config.optimizer.warmup_steps
    if not (config.max_steps or budget.train_seconds or budget.wall_seconds):
        ends = "max_steps, budget.train_seconds or budget.wall_seconds"
        yield f"max_steps=null: a run needs an end; set {ends}"
    if by_seconds and budget.train_seconds is None:
        remedy = "set it, or optimizer.schedule_by=steps"
        yield f"optimizer.schedule_by=seconds: needs budget.train_seconds as its end; {remedy}"
    if by_seconds and warmup >= 1:
        rule = "with optimizer.schedule_by=seconds it is a share of budget.train_seconds"
        yield f"optimizer.warmup_steps={warmup}: {rule}; set a number below 1"
    if schedule != "constant" and not by_seconds and config.max_steps is None:
        remedy = "set max_steps, or budget.train_seconds and optimizer.schedule_by=seconds"
        yield f"optimizer.schedule={schedule}: needs max_steps as its end; {remedy}"


def names(config: TrainConfig) -> Iterator[str]:
    """The run's folder name, the folder to resume from, and the packages of the loggers."""
    if "/" in config.run or config.run.startswith(".") or not config.run:
        yield f"run={config.run}: must be a folder name without / and without a dot at the start"
    if config.resume not in ("auto", "never") and not Path(config.resume).is_dir():
        yield f"resume={config.resume}: no such folder; set auto, never or a checkpoint folder"
    for name, logger in config.logger:
        if logger is not None and name != "console" and find_spec(name) is None:
            yield f"logger={name}: {name} is not installed; uv sync --extra {name}"


def files(config: TrainConfig) -> Iterator[str]:
    """No file or folder is missing, or in the way of the run's."""
    path, task = Path(config.output_dir) / config.run, tasks.TASKS.get(config.task.name)
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        reason = "may not be written" if nearest.is_dir() else "is a file"
        yield f"output_dir={config.output_dir}: {nearest} {reason}; choose another output_dir"
    if task and config.data_dir and not task.rows and "train" in task.splits:
        file = Path(config.data_dir) / task.name / "train.jsonl"
        if not file.is_file():
            remedy = f"put the rows of {task.hub} there, or unset data_dir to use the hub"
            yield f"data_dir={config.data_dir}: no file {file}; {remedy}"
    locate(config.model.path)
    if config.task.name == "own":
        own.refuse_missing(config.task.source)
