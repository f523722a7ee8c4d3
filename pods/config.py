"""The shape of a training config: names and types. Values and their meaning stand in config/."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class Task:
    name: str = MISSING
    style: str = MISSING
    system: str | None = None
    date: str | None = None
    legacy_gold: bool = MISSING
    validation_size: int = MISSING
    source: str | None = None
    question: str | None = None
    answer: str | None = None
    gold: str | None = None
    kind: str | None = None


@dataclass
class Model:
    name: str = MISSING
    path: str = MISSING
    dtype: str = MISSING
    load_in_4bit: bool = MISSING
    pad_token: str | None = None


@dataclass
class Lora:
    rank: int | None = MISSING
    alpha: float | None = MISSING
    dropout: float = MISSING
    target_modules: list[str] = MISSING


@dataclass
class Rule:
    name: str = MISSING
    params: dict[str, Any] = field(default_factory=dict)


@dataclass
class Advantage:
    name: str = MISSING
    params: dict[str, Any] = field(default_factory=dict)


@dataclass
class Algorithm:
    name: str = MISSING


@dataclass
class Rewards:
    version: str = MISSING
    weights: dict[str, float] = MISSING
    functions: dict[str, str] = field(default_factory=dict)
    workers: int = MISSING
    deadline_seconds: float = MISSING


@dataclass
class Sampling:
    temperature: float = MISSING
    top_p: float = MISSING
    top_k: int = MISSING
    max_prompt_length: int = MISSING
    max_completion_length: int = MISSING
    stop: list[str] = MISSING


@dataclass
class Optimizer:
    name: str = MISSING
    learning_rate: float = MISSING
    swept: dict[str, float] = MISSING
    schedule: str = MISSING
    warmup_steps: float = MISSING
    betas: list[float] = MISSING
    weight_decay: float = MISSING
    max_grad_norm: float = MISSING


@dataclass
class Loss:
    type: str = MISSING
    beta: float = MISSING
    epsilon: float = MISSING
    scale_rewards: str = MISSING


@dataclass
class Budget:
    train_seconds: float | None = MISSING
    wall_seconds: float | None = MISSING


@dataclass
class Checkpoint:
    every_seconds: float | None = MISSING
    every_steps: int | None = MISSING
    keep: int | None = MISSING


@dataclass
class InRunEvaluation:
    every_seconds: float | None = MISSING
    split: str = MISSING
    questions: int | None = MISSING
    batch_size: int = MISSING


@dataclass
class LedgerConfig:
    texts: str = MISSING


@dataclass
class Backend:
    name: str = MISSING
    gradient_checkpointing: bool = MISSING
    threads: int | None = MISSING
    warmup: bool = MISSING
    engine: str = MISSING
    gpu_memory_utilization: float = MISSING
    standby: bool = MISSING
    server_url: str = MISSING
    importance_sampling_correction: bool = MISSING
    max_logprob_gap: float = MISSING


@dataclass
class EngineConfig:
    name: str = MISSING
    vllm_mode: str = MISSING
    server_url: str = MISSING
    max_sequences: int | None = MISSING
    gpu_memory_utilization: float = MISSING
    standby: bool = MISSING
    importance_sampling_correction: bool = MISSING
    max_logprob_gap: float = MISSING
    check_every: int = MISSING


@dataclass
class Console:
    pass


@dataclass
class Wandb:
    project: str = MISSING
    mode: str | None = MISSING
    samples_every: int | None = MISSING


@dataclass
class Tensorboard:
    pass


@dataclass
class Logger:
    console: Console | None = None
    wandb: Wandb | None = None
    tensorboard: Tensorboard | None = None


@dataclass
class TrainConfig:
    experiment: str = MISSING
    run: str = MISSING
    seed: int = MISSING
    rollouts_per_prompt: int = MISSING
    kept_per_prompt: int = MISSING
    micro_batch_size: int = MISSING
    prompts_per_step: int = MISSING
    max_steps: int | None = MISSING
    resume: str = MISSING
    data_dir: str | None = MISSING
    output_dir: str = MISSING
    task: Task = field(default_factory=Task)
    model: Model = field(default_factory=Model)
    lora: Lora = field(default_factory=Lora)
    rule: Rule = field(default_factory=Rule)
    advantage: Advantage = field(default_factory=Advantage)
    algorithm: Algorithm = field(default_factory=Algorithm)
    rewards: Rewards = field(default_factory=Rewards)
    sampling: Sampling = field(default_factory=Sampling)
    optimizer: Optimizer = field(default_factory=Optimizer)
    loss: Loss = field(default_factory=Loss)
    budget: Budget = field(default_factory=Budget)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    evaluation: InRunEvaluation = field(default_factory=InRunEvaluation)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    backend: Backend = field(default_factory=Backend)
    engine: EngineConfig = field(default_factory=EngineConfig)
    logger: Logger = field(default_factory=Logger)
