"""Every rule of a training config that spans more than one key, checked before anything loads."""

import math
from collections.abc import Iterator
from pathlib import Path

from pods import distributed
from pods.cli import UserError
from pods.config import TrainConfig
from pods.rules import RULES
from rewards.scorer import reward_names

CHOICES = {
    "task.style": ("instruct", "base"),
    "loss.type": ("grpo", "dapo", "bnpo", "dr_grpo"),
    "loss.scale_rewards": ("group", "batch", "none"),
    "model.dtype": ("float32", "bfloat16"),
    "backend.name": ("auto", "transformers", "unsloth"),
    "backend.engine": ("auto", "vllm", "vllm_server", "generate"),
    "evaluation.split": ("test", "validation"),
    "optimizer.schedule": ("constant", "linear", "cosine"),
    "rewards.version": ("v1", "v1-correctness", "v2", "strict"),
    "ledger.texts": ("first", "all", "none"),
}
POSITIVE = (
    "rollouts_per_prompt", "kept_per_prompt", "micro_batch_size", "prompts_per_step", "max_steps",
    "sampling.temperature", "sampling.max_prompt_length", "sampling.max_completion_length",
    "optimizer.learning_rate", "lora.rank", "lora.alpha", "budget.train_seconds",
    "budget.wall_seconds", "checkpoint.every_seconds", "checkpoint.every_steps", "checkpoint.keep",
    "rewards.deadline_seconds", "backend.threads", "backend.max_logprob_gap",
    "backend.gpu_memory_utilization", "evaluation.every_seconds", "evaluation.questions",
    "evaluation.batch_size",
)  # fmt: skip


def get(config: TrainConfig, key: str) -> object:
    value: object = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def settle(config: TrainConfig) -> None:
    """What follows from the sizes given: GRPO-GA trains all n, and a smaller kept_per_prompt means
    its micro-batch (paper, section 4); a micro-batch never holds more than the m of one prompt,
    nor more than a rank's share."""
    n, m = config.rollouts_per_prompt, config.kept_per_prompt
    if config.algorithm.name == "grpo_ga" and 0 < m < n:
        config.micro_batch_size = min(config.micro_batch_size, m)
        config.kept_per_prompt = n
    share = config.kept_per_prompt * config.prompts_per_step // distributed.world_size()
    config.micro_batch_size = min(config.micro_batch_size, config.kept_per_prompt, max(1, share))


def check(config: TrainConfig) -> None:
    """Raise UserError with the first broken rule: key, value, rule, remedy in one line."""
    for problem in problems(config):
        raise UserError(problem)


def problems(config: TrainConfig) -> Iterator[str]:
    """Every broken rule of the config, most basic first."""
    for key, choices in CHOICES.items():
        if get(config, key) not in choices:
            yield f"{key}={get(config, key)}: must be one of {', '.join(choices)}"
    for key in POSITIVE:
        value = get(config, key)
        if value is not None and not (value > 0 and math.isfinite(value)):
            yield f"{key}={value}: must be greater than 0"
    yield from group_problems(config)
    yield from rank_problems(config)
    yield from run_problems(config)


def group_problems(config: TrainConfig) -> Iterator[str]:
    """n, m, micro-batches, rule and algorithm."""
    n, m, size = config.rollouts_per_prompt, config.kept_per_prompt, config.micro_batch_size
    algorithm, rule = config.algorithm.name, config.rule.name
    if m > n:
        yield (
            f"kept_per_prompt={m}: cannot keep more than rollouts_per_prompt={n}; "
            f"lower it to {n} or less"
        )
    if algorithm == "grpo" and m != n:
        yield (
            f"algorithm=grpo rollouts_per_prompt={n}: plain GRPO trains on every rollout, so it "
            f"must equal kept_per_prompt={m}; set rollouts_per_prompt={m} or algorithm=pods"
        )
    if rule not in RULES:
        yield f"rule.name={rule}: must be one of {', '.join(RULES)}"
    if rule == "all" and m != n:
        yield (
            f"rule=all kept_per_prompt={m}: this rule keeps every rollout; set kept_per_prompt={n} "
            "or rule=max_variance"
        )
    if config.backend.engine == "vllm_server" and n % m:
        yield (
            f"rollouts_per_prompt={n}: a vLLM server is asked for kept_per_prompt={m} completions "
            f"at a time; set a multiple of {m}"
        )
    if m < 2:
        yield f"kept_per_prompt={m}: an advantage needs at least 2 rollouts; set 2 or more"
    if m % size:
        yield (
            f"micro_batch_size={size}: must divide kept_per_prompt={m}, so that no micro-batch "
            f"is short; set a divisor, e.g. {math.gcd(size, m)}"
        )


def rank_problems(config: TrainConfig) -> Iterator[str]:
    """What several ranks need: equal shares, in whole micro-batches."""
    ranks, prompts = distributed.world_size(), config.prompts_per_step
    size, rows = config.micro_batch_size, config.kept_per_prompt * prompts
    if config.rollouts_per_prompt * prompts % ranks or rows % ranks:
        yield (
            f"prompts_per_step={prompts}: the {config.rollouts_per_prompt * prompts} rollouts of a "
            f"step, and the {rows} kept, must be shared equally by {ranks} processes; set a "
            f"multiple of {ranks}"
        )
    elif rows // ranks % size:
        yield (
            f"micro_batch_size={size}: must divide the {rows // ranks} kept rollouts of each of "
            f"{ranks} processes; set e.g. {math.gcd(size, rows // ranks)}"
        )


def run_problems(config: TrainConfig) -> Iterator[str]:
    """Budget, schedule, rewards and names."""
    if config.max_steps is None and not (config.budget.train_seconds or config.budget.wall_seconds):
        yield (
            "max_steps=null: a run needs an end; set max_steps, budget.train_seconds or "
            "budget.wall_seconds"
        )
    if config.optimizer.schedule != "constant" and config.max_steps is None:
        yield (
            f"optimizer.schedule={config.optimizer.schedule}: needs max_steps to know its end; "
            "set max_steps or optimizer.schedule=constant"
        )
    if len(config.optimizer.betas) != 2:
        yield f"optimizer.betas={config.optimizer.betas}: must be two numbers, e.g. [0.9,0.99]"
    unknown = sorted(set(config.rewards.weights) - set(reward_names()))
    if unknown:
        yield f"rewards.weights={unknown}: no such function; one of {', '.join(reward_names())}"
    if not any(config.rewards.weights.values()):
        yield f"rewards.weights={config.rewards.weights}: every weight is 0; set one above 0"
    if config.sampling.top_k < 0 or not 0 < config.sampling.top_p <= 1:
        yield (
            f"sampling.top_p={config.sampling.top_p} top_k={config.sampling.top_k}: "
            "top_p must lie in (0, 1] and top_k be 0 (off) or more"
        )
    if config.resume not in ("auto", "never") and not Path(config.resume).is_dir():
        yield f"resume={config.resume}: no such folder; auto, never or a run's checkpoint folder"
    if config.seed < 0:
        yield f"seed={config.seed}: must be 0 or more"
    if "/" in config.run or config.run.startswith(".") or not config.run:
        yield f"run={config.run}: a folder name without / and not starting with a dot"
