"""Training config: names, types, choices and bounds. Values and their meaning stand in config/.

Rules that span several keys stand in pods/config/check.py.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf

from pods.config.functions import short_name
from pods.config.schema import at_least, one_of, one_of_or_function, positive, share

# Used by the key `run` of config/train.yaml: ${algorithm:} is the algorithm with its parameters,
# ${unless:<name>,<default>} is "-<name>", or nothing for the default; ${own:} is "-own" for
# task=own, and "-<name>" for each reward function of the user's.
OmegaConf.register_new_resolver(
    "unless",
    lambda name, default: "" if name == default else f"-{short_name(name)}",
    replace=True,
)


def _own(*, _root_: DictConfig) -> str:
    """Not through ${...}: a sweep over tasks or rewards must still name its runs."""
    names = ["own"] if _root_.task.name == "own" else []
    return "".join(f"-{name}" for name in (*names, *_root_.rewards.functions))


def _algorithm(*, _root_: DictConfig) -> str:
    """The algorithm with its parameters; the rule too where the algorithm is named by it."""
    name, params = short_name(_root_.algorithm.name), _root_.algorithm.params
    rule = [short_name(_root_.rule.name)] if name in ("grpo", "grpo_ga", "pods") else []
    return "-".join([name, *rule, *(f"{key}{value}" for key, value in sorted(params.items()))])


OmegaConf.register_new_resolver("own", _own, replace=True)
OmegaConf.register_new_resolver("algorithm", _algorithm, replace=True)


@dataclass
class Task:
    name: str = MISSING
    style: str = one_of("instruct", "base")
    system: str | None = None
    date: str | None = None
    legacy_gold: bool = MISSING
    validation_size: int = at_least(0)
    source: str | None = None
    question: str | None = None
    answer: str | None = None
    gold: str | None = one_of_or_function("as_is", "after_hashes", "boxed", default=None)
    kind: str | None = one_of("math", "choice", default=None)


@dataclass
class Model:
    name: str = MISSING
    path: str = MISSING
    dtype: str = one_of("float32", "bfloat16")
    load_in_4bit: bool = MISSING
    pad_token: str | None = None


@dataclass
class Lora:
    rank: int | None = positive()
    alpha: float | None = positive()
    dropout: float = at_least(0)
    target_modules: list[str] = MISSING


@dataclass
class Function:
    name: str = MISSING
    params: dict[str, Any] = field(default_factory=dict)


@dataclass
class Algorithm(Function):
    max_rounds: int = positive()
    needs_logprobs: bool = MISSING


@dataclass
class Rewards:
    version: str = one_of("v1", "v1-correctness", "v2", "strict")
    weights: dict[str, float] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    workers: int = at_least(0)
    deadline_seconds: float = positive()


@dataclass
class Sampling:
    temperature: float = positive()
    top_p: float = share()
    top_k: int = at_least(0)
    max_prompt_length: int = positive()
    max_completion_length: int = positive()
    stop: list[str] = MISSING


@dataclass
class Optimizer:
    name: str = MISSING
    learning_rate: float = positive()
    schedule: str = one_of("constant", "linear", "cosine")
    schedule_by: str | None = one_of("seconds", "steps")
    warmup_steps: float = at_least(0)
    betas: list[float] = MISSING
    weight_decay: float = at_least(0)
    max_grad_norm: float = at_least(0)


@dataclass
class Loss:
    type: str = one_of("grpo", "dapo", "bnpo", "dr_grpo")
    beta: float = at_least(0)
    epsilon: float = positive()
    epsilon_high: float | None = positive()
    importance_sampling_level: str = one_of("token", "sequence")
    mask_truncated_completions: bool = MISSING
    top_entropy_quantile: float = share()


@dataclass
class Budget:
    train_seconds: float | None = positive()
    wall_seconds: float | None = positive()


@dataclass
class Checkpoint:
    every_seconds: float | None = positive()
    every_steps: int | None = positive()
    keep: int | None = positive()


@dataclass
class InRunEvaluation:
    every_seconds: float | None = positive()
    split: str = one_of("test", "validation")
    questions: int | None = positive()
    stop_at: float | None = share()


@dataclass
class LedgerConfig:
    texts: str = one_of("first", "all", "none")


@dataclass
class Backend:
    name: str = one_of("auto", "transformers", "unsloth")
    gradient_checkpointing: bool = MISSING
    threads: int | None = positive()
    warmup: bool = MISSING


@dataclass
class EngineConfig:
    name: str = one_of_or_function("auto", "transformers", "vllm", "unsloth", "trl")
    vllm_mode: str = one_of("auto", "colocate", "server", "none")
    server_url: str = MISSING
    max_sequences: int | None = positive()
    gpu_memory_utilization: float = share()
    standby: bool = MISSING
    importance_sampling_correction: bool = MISSING
    max_logprob_gap: float = positive()
    check_every: int = at_least(1)


@dataclass
class NoKeys:
    pass


@dataclass
class Wandb:
    project: str = MISSING


@dataclass
class Trackio:
    project: str = MISSING
    space_id: str | None = None


@dataclass
class Logger:
    console: NoKeys | None = None
    wandb: Wandb | None = None
    trackio: Trackio | None = None
    tensorboard: NoKeys | None = None


@dataclass
class TrainConfig:
    experiment: str = MISSING
    run: str = MISSING
    seed: int = at_least(0)
    rollouts_per_prompt: int = positive()
    kept_per_prompt: int = positive()
    micro_batch_size: int = positive()
    prompts_per_step: int = positive()
    updates_per_generation: int = positive()
    max_steps: int | None = positive()
    resume: str = MISSING
    trial: bool = MISSING
    init_from: str | None = MISSING
    data_dir: str | None = MISSING
    output_dir: str = MISSING
    task: Task = field(default_factory=Task)
    model: Model = field(default_factory=Model)
    lora: Lora = field(default_factory=Lora)
    rule: Function = field(default_factory=Function)
    advantage: Function = field(default_factory=Function)
    algorithm: Algorithm = field(default_factory=Algorithm)
    rewards: Rewards = field(default_factory=Rewards)
    sampling: Sampling = field(default_factory=Sampling)
    optimizer: Optimizer = field(default_factory=Optimizer)
    loss: Loss = field(default_factory=Loss)
    trl: dict[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    evaluation: InRunEvaluation = field(default_factory=InRunEvaluation)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    backend: Backend = field(default_factory=Backend)
    engine: EngineConfig = field(default_factory=EngineConfig)
    logger: Logger = field(default_factory=Logger)


def reward_weights(rewards: Rewards) -> dict[str, float]:
    """Weight of every reward function; an own one without a weight counts once."""
    own = {name: rewards.weights.get(name, 1.0) for name in rewards.functions}
    return {**rewards.weights, **own}
