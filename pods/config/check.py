"""The rules of a training config that span several keys, checked before anything loads.

Types, choices and bounds of one field stand beside it in pods/config/keys.py.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pods import curriculum, ranks, resampling, tasks
from pods.config import functions
from pods.config.command import CONFIG_DIR
from pods.config.errors import UserError
from pods.config.keys import Function, TrainConfig, reward_weights
from pods.config.schema import SINGULAR
from pods.rules import RULES, Batch, select_batch
from pods.training import autoplan
from rewards.scorer import reward_names

FILE = "path/to/file.py:function"
NUMBER, TEXT, FLAG, KEYS = (float, int), (str,), (bool,), (dict,)
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
    micro-batch holds at most the m of one prompt, and at most one rank's share. A schedule follows
    what ends the run; a constant one follows nothing.
    """
    n, m = config.rollouts_per_prompt, config.kept_per_prompt
    if config.algorithm.name == "grpo_ga" and 0 < m < n:
        config.micro_batch_size = min(config.micro_batch_size, m)
        config.kept_per_prompt = n
    share = config.kept_per_prompt * config.prompts_per_step // ranks.world_size()
    config.micro_batch_size = min(config.micro_batch_size, config.kept_per_prompt, max(1, share))
    optimizer, timed = config.optimizer, config.budget.train_seconds and not config.max_steps
    if optimizer.schedule_by is None:
        by_time = timed and optimizer.schedule != "constant"
        optimizer.schedule_by = "seconds" if by_time else "steps"


def check(config: TrainConfig) -> None:
    """Raise UserError with the first broken rule: key, value, rule, remedy in one line."""
    for rule in RULES_OF_CONFIG:
        for problem in rule(config):
            raise UserError(problem)


def rule_and_advantage(config: TrainConfig) -> Iterator[str]:
    """Built-in names or functions in files, with parameters that they take."""
    yield from _function("rule", config.rule, ("rewards, m, rng", "batch, budget, rng"))
    yield from _function("advantage", config.advantage, ("batch, kept",))
    if config.rule.name in RULES:  # the values of its parameters, on two equal rollouts
        try:
            trial = Batch(rewards=np.zeros((1, 2)), lengths=np.ones((1, 2)))
            select_batch(config.rule.name, trial, 2, **config.rule.params)
        except ValueError as error:
            yield str(error)


def prompts_and_rounds(config: TrainConfig) -> Iterator[str]:
    """A chooser of prompts with parameters that it takes; further rounds where they can be."""
    yield from _function("prompts", config.prompts, ("history, count, rng",))
    yield from curriculum.problems(config)
    yield from resampling.problems(config)
    yield from autoplan.problems(config)


def sizes(config: TrainConfig) -> Iterator[str]:
    """n, m and micro-batch under the algorithm and the rule."""
    n, m, size = config.rollouts_per_prompt, config.kept_per_prompt, config.micro_batch_size
    if m > n:
        remedy = f"set {n} or less"
        yield f"kept_per_prompt={m}: cannot keep more than rollouts_per_prompt={n}; {remedy}"
    if config.algorithm.name == "grpo" and m != n:
        yield (
            f"algorithm=grpo rollouts_per_prompt={n}: must equal kept_per_prompt={m}, because GRPO "
            f"trains on every rollout; set rollouts_per_prompt={m} or algorithm=pods"
        )
    if config.rule.name == "all" and m != n:
        yield (
            f"rule=all kept_per_prompt={m}: this rule keeps every rollout; set "
            f"kept_per_prompt={n} or rule=max_variance"
        )
    if m < 2:
        yield f"kept_per_prompt={m}: an advantage needs at least 2 rollouts; set 2 or more"
    if m % size:
        divisor = math.gcd(size, m)
        yield f"micro_batch_size={size}: must divide kept_per_prompt={m}; set e.g. {divisor}"


def processes(config: TrainConfig) -> Iterator[str]:
    """Several processes take equal shares, in whole micro-batches."""
    count, prompts, size = (
        ranks.world_size(), config.prompts_per_step, config.micro_batch_size
    )  # fmt: skip
    drawn, kept = config.rollouts_per_prompt * prompts, config.kept_per_prompt * prompts
    share = kept // count
    if drawn % count or kept % count:
        yield (
            f"prompts_per_step={prompts}: the {drawn} rollouts of a step, and the {kept} kept, "
            f"must be shared equally by {count} processes; set a multiple of {count}"
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
            yield f"trl.{name}={value}: must be {SINGULAR[TRL_ARGUMENTS[name][0]]}"


def planner(config: TrainConfig) -> Iterator[str]:
    """The noise of the gradient is measured on halves of each prompt, in one process."""
    m, every = config.kept_per_prompt, config.planner.gradient_noise_every
    given = f"planner.gradient_noise_every={every}"
    if every and (m < 4 or m % 2):
        yield f"{given}: halves kept_per_prompt={m}; it must be even and 4 or more; set 0"
    if every and ranks.world_size() > 1:
        yield f"{given}: needs a single process; set 0"


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


def _function(group: str, chosen: Function, forms: tuple[str, ...]) -> Iterator[str]:
    """Whether the function of a group can be called in one of the `forms` with its params."""
    name, params = chosen.name, chosen.params
    if not functions.is_path(name):
        built_in = sorted(file.stem for file in (CONFIG_DIR / group).glob("*.yaml"))
        if name not in built_in:
            yield f"{group}.name={name}: must be one of {', '.join(built_in)}, or {FILE}"
            return
        if group == "advantage":
            if params:
                yield f"{group}.params={params}: {name} has no parameters; remove them"
            return
    signature, first = _signature(group, name), [form.partition(",")[0] for form in forms]
    if next(iter(signature.parameters), None) not in first:
        yield f"{group}.name={name}: its first parameter must be named {' or '.join(first)}"
    try:
        signature.bind(*forms[0].split(","), **params)
    except TypeError as error:
        yield (
            f"{group}.params={params}: {name} cannot be called with ({' or '.join(forms)}, "
            f"**params) ({error}); correct the function or set {group}.params"
        )


def _signature(group: str, name: str) -> inspect.Signature:
    """Parameters of the function, or of the calls to an instance of the class, without self."""
    built_in = curriculum.CHOOSERS if group == "prompts" else RULES
    function = functions.load(f"{group}.name", name) if functions.is_path(name) else built_in[name]
    if not inspect.isclass(function):
        return inspect.signature(function)
    _self, *parameters = inspect.signature(function.__call__).parameters.values()
    return inspect.Signature(parameters)


def loggers(config: TrainConfig) -> Iterator[str]:
    """The package of each logger is installed."""
    for name in ("wandb", "trackio", "tensorboard"):
        if getattr(config.logger, name) is not None and find_spec(name) is None:
            yield f"logger={name}: {name} is not installed; uv sync --extra {name}"


RULES_OF_CONFIG: tuple[Callable[[TrainConfig], Iterator[str]], ...] = (
    rule_and_advantage, prompts_and_rounds, sizes, processes, updates, trl_arguments, planner,
    engine, task, own_functions, weights, end_and_schedule, names, loggers,
)  # fmt: skip
