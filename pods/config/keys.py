"""Training config: names, types, choices and bounds. Values and their meaning stand in config/.

Rules that span several keys stand in pods/training/check.py.
"""

from collections.abc import Mapping
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import Field

from pods.config.functions import short_name
from pods.config.schema import FunctionPath, Section, Text
from pods.config.sweeps import NAMED_BY_RULE

# Used by the key `run` of config/train.yaml: ${algorithm:} is the algorithm with its parameters,
# ${unless:<name>,<default>} is "-<name>", or nothing for the default; ${own:} is "-own" for
# task=own, and "-<name>" for each reward function of the user's.
OmegaConf.register_new_resolver(
    "unless",
    lambda name, default: "" if name == default else f"-{short_name(name)}",
    replace=True,
)


def _keys(node: Any) -> Mapping[str, Any]:
    """Empty where the value is of another type, which is refused later."""
    return node if OmegaConf.is_dict(node) else {}


def _own(*, _root_: DictConfig) -> str:
    """Not through ${...}: a sweep over tasks or rewards must still name its runs."""
    names = ["own"] if _root_.task.name == "own" else []
    return "".join(f"-{name}" for name in (*names, *_keys(_root_.rewards.functions)))


def _algorithm(*, _root_: DictConfig) -> str:
    """The algorithm with its parameters; the rule too where the algorithm is named by it."""
    name, params = short_name(_root_.algorithm.name), _keys(_root_.algorithm.params)
    rule = [short_name(_root_.rule.name)] if name in NAMED_BY_RULE else []
    return "-".join([name, *rule, *(f"{key}{value}" for key, value in sorted(params.items()))])


OmegaConf.register_new_resolver("own", _own, replace=True)
OmegaConf.register_new_resolver("algorithm", _algorithm, replace=True)


class Task(Section):
    name: Text
    style: Literal["instruct", "base"]
    system: Text | None = None
    date: Text | None = None
    legacy_gold: bool
    validation_size: int = Field(ge=0)
    source: Text | None = None
    question: Text | None = None
    answer: Text | None = None
    gold: Literal["as_is", "after_hashes", "boxed"] | FunctionPath | None = None
    kind: Literal["math", "choice"] | None = None


class Model(Section):
    name: Text
    path: Text
    dtype: Literal["float32", "bfloat16"]
    load_in_4bit: bool
    pad_token: Text | None = None


class Lora(Section):
    rank: int | None = Field(gt=0)
    alpha: float | None = Field(gt=0)
    dropout: float = Field(ge=0)
    target_modules: list[Text]


class Function(Section):
    name: Text
    params: dict[Text, Any] = Field(default_factory=dict)


class Algorithm(Function):
    max_rounds: int = Field(gt=0)
    needs_logprobs: bool


class Rewards(Section):
    version: Literal["v1", "v1-correctness", "v2", "strict"]
    weights: dict[Text, float] = Field(default_factory=dict)
    functions: dict[Text, Text] = Field(default_factory=dict)
    workers: int = Field(ge=0)
    deadline_seconds: float = Field(gt=0)


class Sampling(Section):
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    top_k: int = Field(ge=0)
    max_prompt_length: int = Field(gt=0)
    max_completion_length: int = Field(gt=0)
    stop: list[Text]


class Optimizer(Section):
    name: Text
    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "linear", "cosine"]
    schedule_by: Literal["seconds", "steps"] | None
    warmup_steps: float = Field(ge=0)
    betas: list[float]
    weight_decay: float = Field(ge=0)
    max_grad_norm: float = Field(ge=0)


class Loss(Section):
    type: Literal["grpo", "dapo", "bnpo", "dr_grpo"]
    beta: float = Field(ge=0)
    epsilon: float = Field(gt=0)
    epsilon_high: float | None = Field(gt=0)
    importance_sampling_level: Literal["token", "sequence"]
    mask_truncated_completions: bool
    top_entropy_quantile: float = Field(gt=0, le=1)


class Budget(Section):
    train_seconds: float | None = Field(gt=0)
    wall_seconds: float | None = Field(gt=0)


class Checkpoint(Section):
    every_seconds: float | None = Field(gt=0)
    every_steps: int | None = Field(gt=0)
    keep: int | None = Field(gt=0)


class InRunEvaluation(Section):
    every_seconds: float | None = Field(gt=0)
    split: Literal["test", "validation"]
    questions: int | None = Field(gt=0)
    stop_at: float | None = Field(gt=0, le=1)


class LedgerConfig(Section):
    texts: Literal["first", "all", "none"]


class Backend(Section):
    name: Literal["auto", "transformers", "unsloth"]
    gradient_checkpointing: bool
    threads: int | None = Field(gt=0)
    warmup: bool


class EngineConfig(Section):
    name: Literal["auto", "transformers", "vllm", "unsloth", "trl"] | FunctionPath
    vllm_mode: Literal["auto", "colocate", "server", "none"]
    server_url: Text
    max_sequences: int | None = Field(gt=0)
    gpu_memory_utilization: float = Field(gt=0, le=1)
    standby: bool
    importance_sampling_correction: bool
    max_logprob_gap: float = Field(gt=0)
    check_every: int = Field(ge=1)


class Wandb(Section):
    project: Text


class Trackio(Section):
    project: Text
    space_id: Text | None = None


class Logger(Section):
    console: Section | None = None
    wandb: Wandb | None = None
    trackio: Trackio | None = None
    tensorboard: Section | None = None


class TrainConfig(Section):
    experiment: Text
    run: Text
    seed: int = Field(ge=0)
    rollouts_per_prompt: int = Field(gt=0)
    kept_per_prompt: int = Field(gt=0)
    micro_batch_size: int = Field(gt=0)
    prompts_per_step: int = Field(gt=0)
    updates_per_generation: int = Field(gt=0)
    max_steps: int | None = Field(gt=0)
    resume: Text
    trial: bool
    init_from: Text | None
    data_dir: Text | None
    output_dir: Text
    task: Task
    model: Model
    lora: Lora
    rule: Function
    advantage: Function
    algorithm: Algorithm
    rewards: Rewards
    sampling: Sampling
    optimizer: Optimizer
    loss: Loss
    trl: dict[Text, Any] = Field(default_factory=dict)
    budget: Budget
    checkpoint: Checkpoint
    evaluation: InRunEvaluation
    ledger: LedgerConfig
    backend: Backend
    engine: EngineConfig
    logger: Logger = Field(default_factory=Logger)


def reward_weights(rewards: Rewards) -> dict[str, float]:
    """Weight of every reward function; an own one without a weight counts once."""
    own = {name: rewards.weights.get(name, 1.0) for name in rewards.functions}
    return {**rewards.weights, **own}
