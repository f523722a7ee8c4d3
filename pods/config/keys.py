"""Every key of train.py with its type, choices and bounds; config/ has values and explanations, and
pods/training/check.py the rules that span several keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pods.config.errors import UserError
from pods.config.place import SUITE

CONFIG_DIR = SUITE / "config"
COSTS = CONFIG_DIR / "prices"

# A run may be called 3: a number is taken as a text if the key is a text.
Text = Annotated[str, Field(strict=False, coerce_numbers_to_str=True)]
FunctionPath = Annotated[str, Field(pattern=":")]  # path/to/file.py:function


class Section(BaseModel):
    """A group of keys. Unknown keys, values of another type, inf and nan are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def keys(schema: type[Section], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a schema: its groups and their keys."""
    for name, field in schema.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield key
        for kind in (field.annotation, *get_args(field.annotation)):
            if get_origin(kind) is None and isinstance(kind, type) and issubclass(kind, Section):
                yield from keys(kind, f"{key}.")


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        leaves |= flat(value, f"{key}.") if isinstance(value, dict) else {key: value}
    return leaves


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
    system: Text | None = None
    chat_template_kwargs: dict[Text, Any] = Field(default_factory=dict)


class Lora(Section):
    rank: int | None = Field(gt=0, serialization_alias="r")  # PEFT's and Unsloth's names
    alpha: float | None = Field(gt=0, serialization_alias="lora_alpha")
    dropout: float = Field(ge=0, serialization_alias="lora_dropout")
    target_modules: list[Text]


class Function(Section):
    name: Text
    params: dict[Text, Any] = Field(default_factory=dict)


class Algorithm(Function):
    max_rounds: int = Field(gt=0)


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
    betas: list[float] = Field(min_length=2, max_length=2)
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


class Prices(Section):
    """What a step costs on a machine, in seconds (config/prices); measured: no prices."""

    name: Text
    fixed: float = Field(0.0, ge=0)
    round: float = Field(0.0, ge=0)
    generate: float = Field(0.0, ge=0)
    update: float = Field(0.0, ge=0)
    tokens: float | None = Field(None, gt=0)


def price_list(value: object) -> object:
    """`clock=l40s` or `clock=<file>` with the prices of that YAML file; a run's config has them."""
    if not isinstance(value, str) or value == "measured":
        return {"name": value} if isinstance(value, str) else value
    named = COSTS / f"{value}.yaml"
    file = named if named.is_file() else Path(value)
    if not file.is_file():
        names = ", ".join(sorted(path.stem for path in COSTS.glob("*.yaml")))
        raise UserError(f"clock={value}: no such file; set {names}, or a YAML file with prices")
    prices = yaml.safe_load(file.read_text())
    if not isinstance(prices, dict) or not {"fixed", "generate", "update"} <= prices.keys():
        raise UserError(f"clock={value}: {file} lacks fixed, generate or update; see --help")
    return {"name": value, **prices}


class Checkpoint(Section):
    every_seconds: float | None = Field(gt=0)
    every_steps: int | None = Field(gt=0)
    keep: int | None = Field(gt=0)


class InRunEvaluation(Section):
    every_seconds: float | None = Field(gt=0)
    split: Literal["test", "validation"]
    questions: int | None = Field(gt=0)


class LedgerConfig(Section):
    texts: Literal["first", "all", "none"]


class Trl(Section):
    """Arguments of TRL's GRPOConfig that no other key sets and no checkpoint holds; null: TRL's."""

    delta: float | None = None
    entropy_coef: float | None = None
    off_policy_mask_threshold: float | None = None
    vllm_importance_sampling_mode: (
        Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] | None
    ) = None
    vllm_importance_sampling_clip_max: float | None = None
    vllm_importance_sampling_clip_min: float | None = None
    router_aux_loss_coef: float | None = None
    adam_epsilon: float | None = None
    optim_args: Text | None = None
    lr_scheduler_kwargs: dict[Text, Any] | None = None
    gradient_checkpointing_kwargs: dict[Text, Any] | None = None
    disable_dropout: bool | None = None
    ddp_timeout: float | None = None


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


class Logger(Section):
    console: Section | None = None
    wandb: Wandb | None = None
    tensorboard: Section | None = None


class TrainConfig(Section):
    experiment: Text
    run: Text
    seed: int = Field(ge=0)
    rollouts_per_prompt: int = Field(ge=2)
    kept_per_prompt: int = Field(ge=2)  # an advantage needs two
    micro_batch_size: int = Field(gt=0)
    prompts_per_step: int = Field(gt=0)
    updates_per_generation: int = Field(gt=0)
    max_steps: int | None = Field(gt=0)
    resume: Text
    trial: bool
    stop_on_collapse: bool
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
    trl: Trl = Field(default_factory=Trl)
    clock: Annotated[Prices, BeforeValidator(price_list)]
    budget: Budget
    checkpoint: Checkpoint
    evaluation: InRunEvaluation
    ledger: LedgerConfig
    backend: Backend
    engine: EngineConfig
    logger: Logger = Field(default_factory=Logger)

    def moved(self, path: str | None, data_dir: str | None = None) -> "TrainConfig":
        """With the places of model and data that a command replaces."""
        model = self.model.model_copy(update={"path": path or self.model.path})
        return self.model_copy(update={"model": model, "data_dir": data_dir or self.data_dir})


def reward_weights(rewards: Rewards) -> dict[str, float]:
    """Weight of every reward function; an own one without a weight counts once."""
    own = {name: rewards.weights.get(name, 1.0) for name in rewards.functions}
    return {**rewards.weights, **own}
