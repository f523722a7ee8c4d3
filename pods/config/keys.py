"""Every key of train.py with its type, choices and bounds; config/ has values and explanations, and
pods/training/check.py the rules that span several keys."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic.fields import FieldInfo

# String keys accept numbers: run=3.
Text = Annotated[str, Field(strict=False, coerce_numbers_to_str=True)]
NAME = r'^[^/.\[{"][^/]*$'  # of a file or folder that leaves no folder; no list or dictionary
FUNCTION = ":"  # path/to/file.py:function
Share = Annotated[float, Field(gt=0, le=1)]  # in (0, 1]
# A file or folder: a Path in the config, a text in what is saved of it.
Location = Annotated[Text, AfterValidator(lambda text: Path(text)), PlainSerializer(str)]
Name = Annotated[Text, Field(pattern=NAME)]
FunctionPath = Annotated[str, Field(pattern=FUNCTION)]
Parameters = Annotated[dict[Text, Any], Field(default_factory=dict)]  # of a function


@dataclass(frozen=True)
class KeyInfo:
    """Properties of a key beside its type; those of a group hold for all of its keys."""

    resumable: tuple[
        str, ...
    ] = ()  # what a resume may change of it: "" everything, else beginnings
    alike: bool = False  # runs that are averaged must agree in it
    private: bool = False  # of this machine: in no exported folder
    trl: tuple[str, ...] = ()  # arguments of GRPOConfig that follow from it, beside _trl.yaml's


RESUMABLE = KeyInfo(resumable=("",))
ALIKE = KeyInfo(alike=True)
PRIVATE = KeyInfo(private=True)


class Section(BaseModel):
    """A group of keys. Unknown keys, values of another type, inf and nan are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def read_texts(cls, values: Any) -> Any:
        """A list or a dictionary that is typed as a text is read as YAML: Hydra's grammar has no
        quotes around the names of a dictionary, runs="{Größe: [a-*]}"."""
        if not isinstance(values, dict):
            return values
        read = dict(values)
        for name, field in cls.model_fields.items():
            text = values.get(name)
            is_container = get_origin(field.annotation) in (list, dict)
            if is_container and isinstance(text, str) and text[:1] in ("[", "{"):
                with suppress(yaml.YAMLError):  # it has another type then
                    read[name] = yaml.safe_load(text)
        return read


def fields(schema: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every dotted key of a schema with its field: its groups and their keys."""
    for name, field in schema.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield key, field
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from fields(kind, f"{key}.")


def keys(schema: type[Section]) -> list[str]:
    """Every dotted key of a schema."""
    return [key for key, _ in fields(schema)]


def dictionaries(schema: type[Section]) -> set[str]:
    """The keys whose values are dictionaries with names of the user's."""
    return {key for key, field in fields(schema) if get_origin(field.annotation) is dict}


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            leaves |= flat(value, f"{key}.")
        else:
            leaves[key] = value
    return leaves


def changes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
    """Dotted key -> "key (before -> now)", of every key whose values differ."""
    before, now = flat(before), flat(now)
    return {
        key: f"{key} ({before.get(key)} -> {now.get(key)})"
        for key in sorted(before | now)
        if before.get(key) != now.get(key)
    }


def written(value: Any) -> str:
    """A value as it is typed on the command line."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def typed_as(key: str, value: str) -> str:
    """key=value as it is typed, with quotes for the shell and for Hydra if it needs them."""
    return shlex.quote(f"{key}={with_quotes(value)}")


def typed_list(key: str, values: list[str]) -> str:
    """key=[value,value] as it is typed."""
    return shlex.quote(f"{key}=[{','.join(map(with_quotes, values))}]")


def with_quotes(text: str) -> str:
    """A text as Hydra reads it back: without quotes 1e3 is a number, and ö a mistake."""
    plain = re.fullmatch(r"[\w./+-]*[A-Za-z/][\w./+-]*", text, re.ASCII)
    if plain and not re.fullmatch(r"[+-]?(inf|nan|[\d._]+e[+-]?\d+)|true|false|null", text, re.I):
        return text
    # A backslash counts as one unless it stands before a quote, or at the end.
    escaped = re.sub(r'(\\*)("|\Z)', lambda m: m[1] * 2 + m[2].replace('"', '\\"'), text)
    return f'"{escaped}"'


class TaskKeys(Section):
    """The questions, their gold answers and their prompt."""

    name: Annotated[Name, ALIKE]
    style: Literal["instruct", "base"]
    system: Text | None = None
    date: Text | None = None
    validation_size: NonNegativeInt
    source: Annotated[Text | None, ALIKE] = None
    question: Text | None = None
    answer: Text | None = None
    gold: Literal["as_is", "after_hashes", "boxed"] | FunctionPath | None = None
    kind: Literal["math", "choice"] | None = None
    test_size: PositiveInt | None = None
    stratify: Text | None = None


class ModelKeys(Section):
    """The model that is trained, and what its chat template needs."""

    name: Annotated[Name, ALIKE]
    path: Annotated[Text, ALIKE]
    dtype: Annotated[Literal["float32", "bfloat16"], KeyInfo(trl=("bf16",))]
    load_in_4bit: bool
    pad_token: Text | None = None
    system: Text | None = None
    chat_template_kwargs: dict[Text, Any] = {}


class LoraKeys(Section):
    """The adapter; rank None: every parameter is trained."""

    rank: PositiveInt | None = Field(serialization_alias="r")  # PEFT's and Unsloth's names
    alpha: PositiveFloat | None = Field(serialization_alias="lora_alpha")
    dropout: float = Field(ge=0, lt=1, serialization_alias="lora_dropout")
    target_modules: list[Text] = Field(min_length=1)


class RewardsKeys(Section):
    """The grader and the reward functions with their weights."""

    version: Literal["v1", "v1-correctness", "v2", "strict"]
    weights: Annotated[dict[Text, float], KeyInfo(trl=("reward_weights",))] = {}
    functions: dict[Text, Text] = {}
    grader: Text = "correctness"


class SamplingKeys(Section):
    """How rollouts are sampled; lengths in tokens."""

    temperature: PositiveFloat
    top_p: Share
    top_k: NonNegativeInt
    max_prompt_length: PositiveInt
    max_completion_length: Annotated[PositiveInt, KeyInfo(trl=("vllm_max_model_length",))]
    stop: Annotated[list[Annotated[Text, Field(min_length=1)]], KeyInfo(trl=("generation_kwargs",))]


class OptimizerKeys(Section):
    """The optimiser and its schedule."""

    name: Text
    learning_rate: Annotated[PositiveFloat, ALIKE]
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"]
    schedule_by: Literal["seconds", "steps"] | None
    warmup_steps: NonNegativeFloat
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(min_length=2, max_length=2)
    weight_decay: NonNegativeFloat
    max_grad_norm: NonNegativeFloat


class LossKeys(Section):
    """TRL's loss."""

    type: Literal["grpo", "dapo", "bnpo", "dr_grpo", "cispo", "luspo", "sapo", "vespo"]
    beta: NonNegativeFloat
    epsilon: PositiveFloat
    epsilon_high: Annotated[PositiveFloat | None, KeyInfo(trl=("epsilon_high",))]
    importance_sampling_level: Literal["token", "sequence"]
    mask_truncated_completions: bool
    top_entropy_quantile: Share


class BudgetKeys(Section):
    """When a run ends, beside max_steps; seconds."""

    train_seconds: Annotated[PositiveFloat | None, ALIKE]
    wall_seconds: PositiveFloat | None


class Prices(BaseModel):
    """What a step costs on a machine, in seconds; given whole, so its fields are no keys."""

    model_config = Section.model_config

    name: Text  # as in clock=<name>
    fixed: NonNegativeFloat
    round: NonNegativeFloat = 0.0
    generate: NonNegativeFloat
    update: PositiveFloat  # with free steps a budget would never end
    tokens: PositiveFloat | None = None


class CheckpointKeys(Section):
    """When a run is saved, and how many states are kept."""

    every_seconds: PositiveFloat | None
    every_steps: Annotated[PositiveInt | None, KeyInfo(trl=("save_steps",))]
    keep: PositiveInt | None


class EvaluationKeys(Section):
    """Scores during the training."""

    every_seconds: Annotated[PositiveFloat | None, KeyInfo(trl=("eval_strategy",))]
    split: Literal["test", "validation"]
    questions: PositiveInt | None


class VllmKeys(Section):
    """Memory of every engine that uses vLLM, and whether Unsloth's samples from merged weights."""

    gpu_memory_utilization: Annotated[
        Share, RESUMABLE, KeyInfo(trl=("vllm_gpu_memory_utilization",))
    ]
    standby: Annotated[bool, RESUMABLE, KeyInfo(trl=("vllm_enable_sleep_mode",))]
    merged_rollouts: bool = False  # a default, since earlier runs have no such key


class GuardKeys(Section):
    """The comparison of the engine's log-probabilities with the trainer's."""

    max_logprob_gap: PositiveFloat
    check_every: PositiveInt


class WandbKeys(Section):
    """Where logger=[wandb] writes; None and an empty list leave it to wandb's variables."""

    project: Text | None = None
    entity: Text | None = None
    group: Text | None = None
    tags: list[Text] = []


def listed(value: object) -> list:
    """`logger=console` and `logger=[console]` mean the same; null is the empty list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


class TrainConfig(Section):
    """The keys of train.py, as a saved config has them."""

    experiment: Text
    run: Name
    seed: int = Field(ge=0, lt=2**32)  # numpy's own
    output_dir: Annotated[Text, RESUMABLE, PRIVATE]
    data_dir: Annotated[Text | None, RESUMABLE, PRIVATE]
    resume: Annotated[Text, RESUMABLE, PRIVATE, KeyInfo(trl=("resume_from_checkpoint",))]
    # A default, since runs of 0.3 have no such key.
    resume_changed: Annotated[bool, RESUMABLE] = False
    stop_on_collapse: Annotated[bool, RESUMABLE]
    trial: Annotated[bool, RESUMABLE]
    # Of an estimate, which leaves no run.
    card: Annotated[
        Literal["rtx4090", "l40s", "a6000", "a100", "h100", "h200"] | None,
        Field(exclude=True),
        RESUMABLE,
    ] = None
    as_json: Annotated[bool, Field(alias="json", exclude=True), RESUMABLE] = False

    algorithm: Text
    algorithm_kwargs: Parameters
    rule: Text | None
    rule_kwargs: Parameters
    advantage: Text
    advantage_kwargs: Parameters

    rollouts_per_prompt: int = Field(ge=2)
    kept_per_prompt: int = Field(ge=2)  # an advantage needs two
    prompts_per_step: Annotated[PositiveInt, ALIKE, KeyInfo(trl=("generation_batch_size",))]
    micro_batch_size: Annotated[
        PositiveInt, KeyInfo(trl=("gradient_accumulation_steps", "steps_per_generation"))
    ]
    updates_per_generation: PositiveInt
    max_steps: Annotated[
        PositiveInt | None, RESUMABLE, ALIKE, KeyInfo(trl=("max_steps", "num_train_epochs"))
    ]

    clock: Annotated[Literal["measured"] | Prices, ALIKE]
    budget: Annotated[BudgetKeys, RESUMABLE]
    checkpoint: Annotated[CheckpointKeys, RESUMABLE]
    evaluation: Annotated[EvaluationKeys, RESUMABLE]
    ledger_texts: Annotated[Literal["first", "all"], RESUMABLE]
    logger: Annotated[
        list[Literal["console", "wandb", "tensorboard"]],
        BeforeValidator(listed),
        RESUMABLE,
        PRIVATE,
    ]
    wandb: Annotated[WandbKeys, RESUMABLE, PRIVATE] = WandbKeys()

    backend: Annotated[Literal["auto", "transformers", "unsloth"], PRIVATE]
    gradient_checkpointing: bool
    lean_update: bool
    threads: Annotated[PositiveInt | None, RESUMABLE]
    warm_up: bool

    engine: Annotated[
        Literal["auto", "transformers", "vllm", "unsloth", "trl"] | FunctionPath, RESUMABLE
    ]
    max_sequences: Annotated[PositiveInt | None, RESUMABLE]
    vllm: VllmKeys
    guard: Annotated[GuardKeys, RESUMABLE]

    task: TaskKeys
    model: ModelKeys
    lora: LoraKeys
    rewards: RewardsKeys
    sampling: SamplingKeys
    optimizer: OptimizerKeys
    loss: LossKeys
    trl: Annotated[Parameters, KeyInfo(resumable=("use_vllm.", "vllm_mode.", "vllm_server_"))]

    @property
    def price_note(self) -> str:
        """What follows training seconds in a text: " (priced: l40s)", nothing if measured."""
        return "" if self.clock == "measured" else f" (priced: {self.clock.name})"

    def moved(self, path: str | None, data_dir: str | None = None) -> "TrainConfig":
        """With the places of model and data that a command replaces."""
        model = self.model.model_copy(update={"path": path or self.model.path})
        return self.model_copy(update={"model": model, "data_dir": data_dir or self.data_dir})


FACTS = [
    (key, facts)
    for key, field in fields(TrainConfig)
    for facts in field.metadata
    if isinstance(facts, KeyInfo)
]


def keys_with(info: str) -> set[str]:
    """The keys and groups of train.py with this property."""
    return {key for key, facts in FACTS if getattr(facts, info)}


def key_has(info: str, key: str) -> bool:
    """True if a key, or the group that it is in, has this property."""
    return any(f"{key}.".startswith(f"{name}.") for name in keys_with(info))


def may_change(key: str) -> bool:
    """Whether a resumed run may have another value of this key (or group)."""
    beginnings = [f"{name}.{rest}" for name, facts in FACTS for rest in facts.resumable]
    return f"{key}.".startswith(tuple(beginnings))


def reward_weights(rewards: RewardsKeys) -> dict[str, float]:
    """Weight of every reward function; an own one without a weight counts once."""
    own = {name: rewards.weights.get(name, 1.0) for name in rewards.functions}
    return {**rewards.weights, **own}


def grader(rewards: RewardsKeys) -> str | None:
    """The function whose values above 0 mean a correct answer; None if it has no weight."""
    return rewards.grader if reward_weights(rewards).get(rewards.grader) else None
