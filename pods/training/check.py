"""The rules of a training config that span several keys; pods/config/keys.py has the others."""

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pods import dry_run, ranks, registry
from pods.batch import Row
from pods.config import command, functions
from pods.config.errors import UserError, one_line
from pods.config.keys import TrainConfig, grader, reward_weights
from pods.config.paths import PACKAGE
from pods.models import locate
from pods.requirements import conflicts
from pods.rewards import FUNCTIONS
from pods.rewards.tags import opened
from pods.tasks import own, splits

LONGEST_RUN = 200  # bytes of a name; with the parts that results add a file's name has up to 255


def resolve_defaults(config: TrainConfig) -> None:
    """Set what follows from other keys, before `check`: a micro-batch holds at most a rank's share
    of the step; a schedule follows what ends the run."""
    rows = config.kept_per_prompt * config.prompts_per_step // ranks.world_size()
    config.micro_batch_size = min(config.micro_batch_size, max(1, rows))
    optimizer = config.optimizer
    if optimizer.schedule_by is None:
        ends_by_time = config.budget.train_seconds and not config.max_steps
        falls_by_time = ends_by_time and optimizer.schedule != "constant"
        optimizer.schedule_by = "seconds" if falls_by_time else "steps"


def check(config: TrainConfig) -> None:
    """Raise UserError with the first broken rule: key, value, rule, remedy in one line."""
    for rules in (
        card,
        algorithm,
        sizes,
        engine,
        task,
        rewards,
        end,
        schedule,
        resume_and_loggers,
        files,
    ):
        for problem in rules(config):
            raise UserError(problem)


def try_out(overrides: list[str]) -> None:
    """All checks of `train.py <overrides>` that need neither its data nor a model."""
    composed = command.compose("train", overrides)
    registry.resolve(composed)
    config = command.typed(TrainConfig, composed)
    resolve_defaults(config)
    check(config)
    check_algorithm(config)


def card(config: TrainConfig) -> Iterator[str]:
    """The keys of an estimate."""
    if config.card and not config.trial:
        yield f"card={config.card}: estimates a trial; set trial=true, or leave it out"
    if config.as_json and not config.card:
        yield "json=true: prints the estimate of a card; set card=l40s, or leave it out"


def algorithm(config: TrainConfig) -> Iterator[str]:
    """The algorithm, its rule and the advantage exist, take their parameters and are used."""
    if registry.requirements_of_name(config.algorithm).takes_rule and config.rule is None:
        yield f"rule=null: algorithm={config.algorithm} takes one; set rule=max_variance"
    registry.algorithm_and_advantage(config)


def sizes(config: TrainConfig) -> Iterator[str]:
    """n, m, advantage, arguments of TRL's and micro-batch under the algorithm, the rule and the
    number of processes; the adapter's alpha."""
    n, m, P = config.rollouts_per_prompt, config.kept_per_prompt, config.prompts_per_step
    name, size, processes = config.algorithm, config.micro_batch_size, ranks.world_size()
    requirements = registry.requirements_of_name(name)
    yield from conflicts(
        requirements,
        name,
        n=n,
        m=m,
        m_key="kept_per_prompt",
        rule=config.rule,
        advantage=config.advantage,
        arguments=config.trl,
        prefix="trl.",
    )
    if config.model.load_in_4bit and not config.lora.rank:
        yield (
            "model.load_in_4bit=true: 4-bit weights are not trained, and lora.rank=null has no "
            "adapter; set model.load_in_4bit=false"
        )
    if config.lora.rank and config.lora.alpha is None:
        yield (
            "lora.alpha=null: an adapter needs one; leave it out, and it is "
            f"lora.rank={config.lora.rank}"
        )
    if config.rule == "all" and m != n:
        yield f"kept_per_prompt={m}: rule=all keeps every rollout; set {n}, or rule=max_variance"
    rows, rest = divmod(m * P, processes)
    if rest:
        yield (
            f"prompts_per_step={P}: the {m * P} kept rollouts of a step must be shared equally by "
            f"{processes} processes; set a multiple of {processes}"
        )
    elif rows % size:
        fitting = max(divisor for divisor in range(1, size) if rows % divisor == 0)
        yield (
            f"micro_batch_size={size}: must divide kept_per_prompt={m} x prompts_per_step={P} / "
            f"{processes} processes = {rows} rows; set e.g. {fitting}"
        )


def engine(config: TrainConfig) -> Iterator[str]:
    """Keys that TRL's own generation or Unsloth's does not have."""
    if config.vllm.merged_rollouts and config.model.load_in_4bit:
        yield (
            "vllm.merged_rollouts=true: an adapter is added to 16-bit weights, not to 4-bit ones; "
            "set model.load_in_4bit=false with the base's 16-bit copy (docs/gpu.md)"
        )
    if config.engine != "trl":
        return
    n, m, stop = config.rollouts_per_prompt, config.kept_per_prompt, config.sampling.stop
    mode = config.trl.get("vllm_mode")
    if mode not in (None, "colocate", "server"):
        yield (
            f"trl.vllm_mode={mode}: must be colocate or server; "
            "for transformers' generate set trl.use_vllm=false"
        )
    if mode == "server" and n % m:
        yield f"rollouts_per_prompt={n}: a vLLM server returns {m} at a time; set a multiple of {m}"
    if config.trl.get("use_vllm") is False and stop:
        yield f"sampling.stop={stop}: trl.use_vllm=false has none; set sampling.stop=[]"


def task(config: TrainConfig) -> Iterator[str]:
    """The task's keys fit together, and the user's functions load."""
    yield from splits.problems(config.task)
    if functions.is_path(config.engine):
        own = functions.load("engine", config.engine)
        for name in ("generate", "__enter__", "__exit__"):
            if isinstance(own, type) and not hasattr(own, name):
                yield (
                    f"engine={config.engine}: {own.__name__} has no {name}; it must be a context "
                    "manager with a method generate (pods/engines/__init__.py)"
                )
    if config.task.gold and functions.is_path(config.task.gold):
        functions.load("task.gold", config.task.gold)


def rewards(config: TrainConfig) -> Iterator[str]:
    """The user's functions load under free names, and a reward has a weight other than 0."""
    for name, path in config.rewards.functions.items():
        if name in FUNCTIONS or not name.isidentifier():
            yield (
                f"rewards.functions.{name}={path}: the name must be an identifier other than "
                f"{', '.join(FUNCTIONS)}; choose another name"
            )
        functions.load(f"rewards.functions.{name}", path)
    known = (*FUNCTIONS, *config.rewards.functions)
    named = {f"weights.{name}={weight}": name for name, weight in config.rewards.weights.items()}
    named[f"grader={config.rewards.grader}"] = config.rewards.grader
    for setting, name in named.items():
        if name not in known:
            yield (
                f"rewards.{setting}: no such reward; one of {', '.join(known)}, or "
                f"define it with rewards.functions.{name}=path/to/file.py:function"
            )
    if not any(reward_weights(config.rewards).values()):
        yield f"rewards.weights={config.rewards.weights}: every weight is 0; set one above 0"


def end(config: TrainConfig) -> Iterator[str]:
    """A run has an end; checkpoints and the end fall between two generations: others could not be
    resumed."""
    updates = config.updates_per_generation
    counts = {
        "max_steps": config.max_steps,
        "checkpoint.every_steps": config.checkpoint.every_steps,
    }
    for key, count in counts.items():
        if count and count % updates:
            yield (
                f"{key}={count}: must be a multiple of updates_per_generation={updates}; "
                f"set e.g. {count + -count % updates}"
            )
    if not (config.max_steps or config.budget.train_seconds or config.budget.wall_seconds):
        yield (
            "max_steps=null: a run needs an end; "
            "set max_steps, budget.train_seconds or budget.wall_seconds"
        )


def schedule(config: TrainConfig) -> Iterator[str]:
    """A schedule has an end, in seconds or in steps."""
    optimizer = config.optimizer
    by_seconds = optimizer.schedule_by == "seconds"
    if by_seconds and config.budget.train_seconds is None:
        yield (
            "optimizer.schedule_by=seconds: needs budget.train_seconds as its end; "
            "set it, or optimizer.schedule_by=steps"
        )
    if by_seconds and optimizer.warmup_steps >= 1:
        yield (
            f"optimizer.warmup_steps={optimizer.warmup_steps}: with optimizer.schedule_by=seconds "
            "it is a share of budget.train_seconds; set a number below 1"
        )
    if optimizer.schedule != "constant" and not by_seconds and config.max_steps is None:
        yield (
            f"optimizer.schedule={optimizer.schedule}: needs max_steps as its end; "
            "set max_steps, or budget.train_seconds and optimizer.schedule_by=seconds"
        )


def resume_and_loggers(config: TrainConfig) -> Iterator[str]:
    """The folder to resume from, and the packages of the loggers."""
    if config.resume not in ("auto", "never") and not Path(config.resume).is_dir():
        yield f"resume={config.resume}: no such folder; set auto, never or a checkpoint folder"
    for name in config.logger:
        if name != "console" and find_spec(name) is None:
            yield f"logger={name}: {name} is not installed; uv pip install {name}"
        elif name == "wandb" and not config.trial:
            yield from wandb_login()


def wandb_login() -> Iterator[str]:
    """Without a key wandb would end the run when the model is loaded."""
    import wandb

    if wandb.setup().settings.mode in ("offline", "disabled", "dryrun"):
        return
    try:
        reason = "" if wandb.login(prompt=False) else "has no key"
    except Exception as error:  # of wandb's own types: a wrong key, no network
        reason = one_line(error).rstrip(".")
    if reason:
        yield f"logger=wandb: {reason}; log in, set WANDB_MODE=offline, or leave it out"


def files(config: TrainConfig) -> Iterator[str]:
    """The name of the run fits into those of its files, and the files that it reads are there."""
    size = len(os.fsencode(config.run))
    if size > LONGEST_RUN:
        yield (
            f"run={config.run}: has {size} bytes, and files are named after it; "
            f"set a name of at most {LONGEST_RUN}"
        )
    built_in = splits.TASKS.get(config.task.name)
    if built_in and config.data_dir and not built_in.rows and "train" in built_in.splits:
        file = Path(config.data_dir) / built_in.folder / "train.jsonl"
        if not file.is_file():
            yield (
                f"data_dir={config.data_dir}: no file {file}; "
                f"put the rows of {built_in.hub} there, or unset data_dir to use the hub"
            )
    locate(config.model.path)
    if config.task.name == "own":
        own.refuse_unreadable(config.task)


def say_if_clipped(config: TrainConfig, tokenizer: Any, rows: Iterable[Row]) -> None:
    """Print a line if no rollout can be well formed: the shortest such text is longer than sampling
    allows."""
    weights = reward_weights(config.rewards)
    if not any(weights.get(name) for name in FUNCTIONS):
        return
    shortest = min(
        len(tokenizer(opened_block(row)).input_ids) + 1
        for row in rows  # and the end token
    )
    limit = config.sampling.max_completion_length
    if shortest > limit:
        ranks.say(
            f"sampling.max_completion_length={limit}: every rollout will be clipped, since the "
            f"shortest well-formed answer has {shortest} tokens; set more than that"
        )


def say_if_system_is_unknown(config: TrainConfig) -> None:
    """Say it if the embedded model gets a system text, which its training had none of."""
    embedded = str(PACKAGE / "tiny_policy")
    if config.task.system is None and locate(config.model.path) == embedded:
        ranks.say(
            "task.system=null: the embedded model knows no system text and answers near 0 % with "
            "one; set 'task.system=\"\"'"
        )


def say_if_not_evaluated(config: TrainConfig) -> None:
    """Say it if evaluation.questions is set for a run that ends before its first evaluation."""
    questions, every = config.evaluation.questions, config.evaluation.every_seconds
    lasts = config.budget.train_seconds
    if not questions or config.trial:
        return
    if every is None:
        ranks.say(
            f"evaluation.questions={questions}: has no effect, since nothing is evaluated during "
            "the training; set evaluation.every_seconds=<seconds of training>"
        )
    elif lasts and every > lasts:
        ranks.say(
            f"evaluation.every_seconds={every}: the run ends before its first evaluation, after "
            f"budget.train_seconds={lasts}; set fewer seconds"
        )


def opened_block(row: Row) -> str:
    """The shortest well-formed completion with the gold answer."""
    start = "" if opened(row["prompt"]) else "<think>"
    return f"{start}</think><answer>{row['answer']}</answer>"


def check_algorithm(
    config: TrainConfig, rows: Sequence[Row] = ({"prompt": "", "answer": ""},)
) -> None:
    """Raise UserError if the algorithm or the advantage fails on made-up rollouts of these rows."""
    algorithm, advantage = registry.algorithm_and_advantage(config)
    dry_run.dry_run(
        algorithm,
        advantage,
        weights=reward_weights(config.rewards),
        correct=grader(config.rewards),
        P=config.prompts_per_step,
        n=config.rollouts_per_prompt,
        m=config.kept_per_prompt,
        rows=rows,
    )
