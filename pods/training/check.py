"""The rules of a training config that span several keys, checked before anything loads.

Types, choices and bounds of one field stand beside it in pods/config/keys.py. Imports no torch.
"""

import math
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from pods import advantages, algorithms, ranks, rules, tasks
from pods.config import functions
from pods.config.errors import UserError
from pods.config.keys import TrainConfig, reward_weights
from pods.models import initial, locate
from pods.tasks import own
from rewards.scorer import reward_names

FILE = "path/to/file.py:function"
NUMBER, TEXT, FLAG, KEYS = (float, int), str, bool, dict
WORDS = {NUMBER: "a number", TEXT: "a text", FLAG: "true or false", KEYS: "keys with values"}
# Arguments of TRL's GRPOConfig that `trl` may hold, with their types.
TRL_ARGUMENTS = {
    "delta": NUMBER, "entropy_coef": NUMBER, "off_policy_mask_threshold": NUMBER,
    "vllm_importance_sampling_mode": TEXT, "vllm_importance_sampling_clip_max": NUMBER,
    "vllm_importance_sampling_clip_min": NUMBER, "router_aux_loss_coef": NUMBER,
    "adam_epsilon": NUMBER, "optim_args": TEXT, "lr_scheduler_kwargs": KEYS,
    "gradient_checkpointing_kwargs": KEYS, "disable_dropout": FLAG, "ddp_timeout": NUMBER,
}  # fmt: skip


def settle(config: TrainConfig) -> None:
    """Set the sizes that follow from others, once, before `check`.

    GRPO-GA trains on all n; a smaller kept_per_prompt means its micro-batch (paper, section 4). A
    micro-batch holds at most one rank's share of the step. A schedule follows what ends the run; a
    constant one follows nothing.
    """
    n, m = config.rollouts_per_prompt, config.kept_per_prompt
    if config.algorithm.name == "grpo_ga" and 0 < m < n:
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
    for rule in RULES_OF_CONFIG:
        for problem in rule(config):
            raise UserError(problem)


def algorithm_and_functions(config: TrainConfig) -> Iterator[str]:
    """The algorithm, its rule and the advantage exist and take their parameters."""
    rule, advantage, algorithm = config.rule, config.advantage, config.algorithm
    for group, prepare in (
        ("rule", lambda: rules.prepared(rule.name, rule.params)),
        ("advantage", lambda: advantages.prepared(advantage.name, advantage.params)),
        ("algorithm", lambda: algorithms.prepared(
            algorithm.name, algorithm.params, rules.max_variance)),
    ):  # fmt: skip
        try:
            prepare()
        except ValueError as error:
            chosen = getattr(config, group)
            params = f" {group}.params={chosen.params}" if chosen.params else ""
            yield f"{group}.name={chosen.name}{params}: {error}"


def used(config: TrainConfig) -> Iterator[str]:
    """The algorithm uses the rule and the advantage function that are named."""
    name, chosen, rule = config.algorithm.name, config.advantage.name, config.rule.name
    if name in algorithms.ALGORITHMS and name != "pods" and rule not in ("all", "max_variance"):
        yield f"rule={rule}: algorithm={name} has no rule; leave rule out, or set algorithm=pods"
    if name in algorithms.OWN_ADVANTAGES and chosen != "kept":
        yield (
            f"advantage={chosen}: algorithm={name} chooses rollouts by its own advantages and "
            "trains with them; leave advantage=kept"
        )


def sizes(config: TrainConfig) -> Iterator[str]:
    """n, m and micro-batch under the algorithm and the rule."""
    n, m, size = config.rollouts_per_prompt, config.kept_per_prompt, config.micro_batch_size
    if m > n:
        remedy = f"set {n} or less"
        yield f"kept_per_prompt={m}: cannot keep more than rollouts_per_prompt={n}; {remedy}"
    name = config.algorithm.name
    if name in algorithms.DRAWS_M and m != n:
        yield (
            f"algorithm={name} rollouts_per_prompt={n}: must equal kept_per_prompt={m}, because it "
            f"trains on every rollout; set rollouts_per_prompt={m} or algorithm=pods"
        )
    if config.rule.name == "all" and name == "pods" and m != n:
        yield (
            f"rule=all kept_per_prompt={m}: this rule keeps every rollout; set "
            f"kept_per_prompt={n} or rule=max_variance"
        )
    if m < 2:
        yield f"kept_per_prompt={m}: an advantage needs at least 2 rollouts; set 2 or more"
    rows = m * config.prompts_per_step
    if rows % size:
        yield (
            f"micro_batch_size={size}: must divide the {rows} rows of a step (kept_per_prompt={m} "
            f"x prompts_per_step={config.prompts_per_step}); set e.g. {math.gcd(size, rows)}"
        )


def processes(config: TrainConfig) -> Iterator[str]:
    """Several processes take equal shares, in whole micro-batches."""
    count, prompts, size = (
        ranks.world_size(), config.prompts_per_step, config.micro_batch_size
    )  # fmt: skip
    kept = config.kept_per_prompt * prompts
    share = kept // count
    if kept % count:
        yield (
            f"prompts_per_step={prompts}: the {kept} kept rollouts of a step must be shared "
            f"equally by {count} processes; set a multiple of {count}"
        )
    elif share % size:
        yield (
            f"micro_batch_size={size}: must divide the {share} kept rollouts of each "
            f"of {count} processes; set e.g. {math.gcd(size, share)}"
        )


def updates(config: TrainConfig) -> Iterator[str]:
    """Checkpoints and the end of a run fall between two generations."""
    each = config.updates_per_generation
    for key, steps in (
        ("max_steps", config.max_steps), ("checkpoint.every_steps", config.checkpoint.every_steps)
    ):  # fmt: skip
        if steps is not None and steps % each:
            yield (
                f"{key}={steps}: must be a multiple of updates_per_generation={each}, because a "
                f"checkpoint between two updates of a generation cannot be resumed; set e.g. "
                f"{steps + -steps % each}"
            )


def trl_arguments(config: TrainConfig) -> Iterator[str]:
    """Only arguments that change neither what the other keys set nor what a checkpoint holds."""
    for name, value in config.trl.items():
        if name not in TRL_ARGUMENTS:
            yield (
                f"trl.{name}={value}: not passed on, because another key sets it or a run does not "
                f"use it; the arguments are {', '.join(TRL_ARGUMENTS)}"
            )
        elif not isinstance(value, TRL_ARGUMENTS[name]):
            yield f"trl.{name}={value}: must be {WORDS[TRL_ARGUMENTS[name]]}"


def engine(config: TrainConfig) -> Iterator[str]:
    """What TRL's own generation cannot do."""
    n, m = config.rollouts_per_prompt, config.kept_per_prompt
    mode = config.engine.vllm_mode if config.engine.name == "trl" else None
    if mode == "server" and n % m:
        yield (
            f"rollouts_per_prompt={n}: a vLLM server returns kept_per_prompt={m} completions per "
            f"request; set a multiple of {m}"
        )
    if mode == "none" and config.sampling.stop:
        yield (
            f"sampling.stop={config.sampling.stop}: engine=trl engine.vllm_mode=none has no stop "
            "strings; set sampling.stop=[] or engine=transformers"
        )


def task(config: TrainConfig) -> Iterator[str]:
    """The keys of the task fit together; reads no data."""
    yield from tasks.problems(config.task)


def own_functions(config: TrainConfig) -> Iterator[str]:
    """Functions in files of the user's load, and rewards have names that are free."""
    for key, value in (("engine.name", config.engine.name), ("task.gold", config.task.gold)):
        if value and functions.is_path(value):
            functions.load(key, value)
    for name, path in config.rewards.functions.items():
        if name in reward_names() or not name.isidentifier():
            yield (
                f"rewards.functions.{name}={path}: the name must be an identifier other than "
                f"{', '.join(reward_names())}; choose another name"
            )
        functions.load(f"rewards.functions.{name}", path)


def weights(config: TrainConfig) -> Iterator[str]:
    """Every weight is finite and belongs to a reward function; one is not 0."""
    known = (*reward_names(), *config.rewards.functions)
    for name, weight in config.rewards.weights.items():
        if name not in known:
            yield (
                f"rewards.weights.{name}={weight}: no such reward; one of {', '.join(known)}, or "
                f"define it with rewards.functions.{name}={FILE}"
            )
        if not math.isfinite(weight):
            yield f"rewards.weights.{name}={weight}: must be a finite number"
    if not any(reward_weights(config.rewards).values()):
        yield f"rewards.weights={config.rewards.weights}: every weight is 0; set one above 0"


def end_and_schedule(config: TrainConfig) -> Iterator[str]:
    """A run ends, and its schedule knows where."""
    budget, optimizer, betas = config.budget, config.optimizer, config.optimizer.betas
    schedule, by_seconds = optimizer.schedule, optimizer.schedule_by == "seconds"
    if not (config.max_steps or budget.train_seconds or budget.wall_seconds):
        ends = "max_steps, budget.train_seconds or budget.wall_seconds"
        yield f"max_steps=null: a run needs an end; set {ends}"
    if by_seconds and budget.train_seconds is None:
        remedy = "set it, or optimizer.schedule_by=steps"
        yield f"optimizer.schedule_by=seconds: needs budget.train_seconds as its end; {remedy}"
    if by_seconds and optimizer.warmup_steps >= 1:
        yield (
            f"optimizer.warmup_steps={optimizer.warmup_steps}: with optimizer.schedule_by=seconds "
            "it is a share of budget.train_seconds; set a number below 1"
        )
    if schedule != "constant" and not by_seconds and config.max_steps is None:
        remedy = "set max_steps, or budget.train_seconds and optimizer.schedule_by=seconds"
        yield f"optimizer.schedule={schedule}: needs max_steps as its end; {remedy}"
    evaluation = config.evaluation
    if evaluation.stop_at and evaluation.split == "test":
        yield (
            f"evaluation.stop_at={evaluation.stop_at}: test questions may not decide when a run "
            "ends; set evaluation.split=validation"
        )
    if evaluation.stop_at and evaluation.every_seconds is None:
        yield (
            f"evaluation.stop_at={evaluation.stop_at}: needs evaluations; set "
            "evaluation.every_seconds to the training time between two of them"
        )
    if len(betas) != 2:
        yield f"optimizer.betas={betas}: must be two numbers, e.g. [0.9,0.99]"


def names(config: TrainConfig) -> Iterator[str]:
    """The run's folder name, and the folder to resume from."""
    if "/" in config.run or config.run.startswith(".") or not config.run:
        yield f"run={config.run}: must be a folder name without / and without a dot at the start"
    if config.resume not in ("auto", "never") and not Path(config.resume).is_dir():
        yield f"resume={config.resume}: no such folder; set auto, never or a checkpoint folder"


def loggers(config: TrainConfig) -> Iterator[str]:
    """The package of each logger is installed."""
    for name in ("wandb", "trackio", "tensorboard"):
        if getattr(config.logger, name) is not None and find_spec(name) is None:
            yield f"logger={name}: {name} is not installed; uv sync --extra {name}"


RULES_OF_CONFIG: tuple[Callable[[TrainConfig], Iterator[str]], ...] = (
    algorithm_and_functions, used, sizes, processes, updates, trl_arguments, engine, task,
    own_functions, weights, end_and_schedule, names, loggers,
)  # fmt: skip


def check_files(config: TrainConfig) -> None:
    """Raise UserError for a file or folder that is missing, or in the way of the run's."""
    for problem in (*_folders(config), *_questions(config)):
        raise UserError(problem)
    locate(config.model.path)
    if config.task.name == "own":
        own.refuse_missing(config.task.source)
    initial.check(config)


def _folders(config: TrainConfig) -> Iterator[str]:
    """The run's folder can be made, or written."""
    path = Path(config.output_dir) / config.run
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        reason = "may not be written" if there.is_dir() else "is a file"
        yield f"output_dir={config.output_dir}: {there} {reason}; choose another output_dir"


def _questions(config: TrainConfig) -> Iterator[str]:
    """data_dir has the training questions of a built-in task that reads them."""
    task = tasks.TASKS.get(config.task.name)
    if task and config.data_dir and not task.rows and "train" in task.splits:
        file = Path(config.data_dir) / task.name / "train.jsonl"
        if not file.is_file():
            remedy = f"put the rows of {task.hub} there, or unset data_dir to use the hub"
            yield f"data_dir={config.data_dir}: no file {file}; {remedy}"
