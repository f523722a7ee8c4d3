"""The keys of config/evaluate/evaluate.yaml, and their rules."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from pods.config.command import CONFIG_DIR, SEARCHED, compose, load_config, typed
from pods.config.errors import UserError
from pods.config.functions import code_of, refuse_code
from pods.config.keys import Location, Section, Share, Text, TrainConfig, listed
from pods.evaluation import lookup
from pods.files import few
from pods.rewards import VERSIONS
from pods.tasks import splits

Names = Annotated[list[Text], BeforeValidator(listed)]
Checkpoints = Annotated[
    list[Literal["all", "best", "last"] | NonNegativeInt],  # or a step
    BeforeValidator(listed),
    Field(min_length=1),
]
Tasks = Annotated[list[Literal[*splits.NAMES]], BeforeValidator(listed)]
Graders = Annotated[list[Literal[*VERSIONS]], BeforeValidator(listed)]


class EvaluateConfig(Section):
    run: Names
    experiment: Text | None
    model: Text | None
    checkpoints: Checkpoints
    tasks: Tasks
    questions: PositiveInt | None
    repeats: PositiveInt
    greedy: bool
    seed: NonNegativeInt
    rewards: Graders
    pass_at: list[PositiveInt]
    by: Text | None
    split: Literal["test", "validation"]
    engine: Literal["auto", "vllm", "transformers"]
    model_path: Text | None
    data_dir: Text | None
    temperature: NonNegativeFloat | None
    top_p: Share | None
    top_k: NonNegativeInt | None
    max_tokens: PositiveInt | None
    max_sequences: PositiveInt | None
    gpu_memory_utilization: Share | None
    trust_code: bool
    output_dir: Location
    results_dir: Location


def check(config: EvaluateConfig) -> None:
    """Every rule that spans keys, before anything heavy loads. Raises UserError."""
    sources = {"run": ",".join(config.run), "experiment": config.experiment, "model": config.model}
    asked = [f"{key}={value}" for key, value in sources.items() if value]
    if len(asked) > 1:
        raise UserError(f"{' '.join(asked)}: each says what is scored; set one")
    if config.model and not config.tasks:
        raise UserError(f"model={config.model}: no run says the task; set tasks=[gsm8k]")
    if not config.run and config.checkpoints != ["all"]:
        raise UserError("run=null: has no checkpoints; set run, or drop checkpoints")
    if not asked:
        known = few(lookup.known_runs(config.output_dir)) or "none"
        raise UserError(
            "run=null: name a run, or the base model to score: experiment=quickstart, or "
            f"model=<hub id or folder> tasks=[gsm8k]; runs: {known}"
        )


def training_config(config: EvaluateConfig, run: str | None) -> TrainConfig:
    """The config of a run, or of an experiment, or config/train.yaml with this model."""
    if run:
        saved = config.output_dir / run / lookup.SAVED
        training = load_config(saved)
        if not config.trust_code:
            refuse_code(f"run={run}: {saved}", code_of(training))
        return training
    if config.experiment:
        return typed(TrainConfig, compose("train", [f"experiment={config.experiment}"]))
    overrides = ["~experiment", "rollouts_per_prompt=2", "kept_per_prompt=2"]
    first = config.tasks[0]
    if (CONFIG_DIR / "task" / f"{first}.yaml").is_file():  # test sets have none
        overrides.append(f"task={first}")  # its system text
    if any((folder / "model" / f"{config.model}.yaml").is_file() for folder in SEARCHED):
        composed = compose("train", [*overrides, f"model={config.model}"])
    else:
        composed = compose("train", overrides)
        name = re.sub(r"[^\w.]+", "-", config.model).strip("-.").lower()
        composed.model.update(name=name, path=config.model, pad_token=None, load_in_4bit=False)
    composed.experiment = "none"
    return typed(TrainConfig, composed)
