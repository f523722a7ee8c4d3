"""The keys of config/evaluate/evaluate.yaml and their rules, and the runs and models they name."""

import re
from fnmatch import filter as matching
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from pods.config.command import CONFIG_DIR, compose, load_config, typed
from pods.config.errors import UserError
from pods.config.keys import Section, Text, TrainConfig
from pods.config.mistakes import nearest
from pods.evaluation import targets
from pods.evaluation.targets import Store, Target
from pods.models import locate
from pods.rewards import VERSIONS
from pods.runs.results import run_order
from pods.tasks import splits

SAVED = ".hydra/config.yaml"  # in a run's folder
PLACES = ("run", "from_training", "output_dir", "results_dir")  # keys that from_training=true reads


def listed(value: object) -> list[str]:
    """`tasks=gsm8k` and `tasks=[gsm8k]` mean the same; null is the empty list. Each name once."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return list(dict.fromkeys(map(str, values)))


Names = Annotated[list[Text], BeforeValidator(listed)]
Tasks = Annotated[list[Literal[*splits.NAMES]], BeforeValidator(listed)]
Graders = Annotated[list[Literal[*VERSIONS]], BeforeValidator(listed)]


class OneCheckpoint(Section):
    """The keys that chat.py and export.py share."""

    run: Text
    checkpoint: Text
    model_path: Text | None
    output_dir: Text
    results_dir: Text


class EvaluateConfig(Section):
    run: Names
    experiment: Text | None
    model: Text | None
    checkpoints: Names
    tasks: Tasks
    questions: int | None = Field(ge=1)
    repeats: int = Field(ge=1)
    greedy: bool
    seed: int = Field(ge=0)
    rewards: Graders
    pass_at: list[Annotated[int, Field(ge=1)]]
    split: Literal["test", "validation"]
    from_training: bool
    engine: Literal["auto", "vllm", "transformers"]
    model_path: Text | None
    data_dir: Text | None
    temperature: float | None = Field(ge=0)
    top_p: float | None = Field(gt=0, le=1)
    top_k: int | None = Field(ge=0)
    max_tokens: int | None = Field(ge=1)
    max_sequences: int | None = Field(ge=1)
    window: int = Field(ge=1)
    max_loras: int = Field(ge=1)
    gpu_memory_utilization: float | None = Field(gt=0, le=1)
    output_dir: Text
    results_dir: Text


def check(config: EvaluateConfig) -> None:
    """Every rule that spans keys, before anything heavy loads. Raises UserError."""
    for name in config.checkpoints or ["null"]:
        if name not in ("all", "best", "last") and not name.isdigit():
            raise UserError(f"checkpoints={name}: must be all, best, last, or a list of steps")
    sources = {"run": ",".join(config.run), "experiment": config.experiment, "model": config.model}
    if len(asked := [f"{key}={value}" for key, value in sources.items() if value]) > 1:
        raise UserError(f"{' '.join(asked)}: each says what is scored; set one")
    if config.model and not config.tasks:
        raise UserError(f"model={config.model}: no run says the task; set tasks=[gsm8k]")
    if not config.run and (config.checkpoints != ["all"] or config.from_training):
        raise UserError("run=null: has no checkpoints; set run, or drop checkpoints, from_training")
    if not asked:
        known = ", ".join(_known(config.output_dir)) or "none"
        raise UserError(
            "run=null: name a run, or the base model to score: experiment=quickstart, or "
            f"model=<hub id or folder> tasks=[gsm8k]; runs: {known}"
        )
    if config.data_dir and not Path(config.data_dir).is_dir():
        raise UserError(f"data_dir={config.data_dir}: no such folder; correct the path")
    if Path(config.results_dir).is_file():
        raise UserError(f"results_dir={config.results_dir}: is a file; choose a folder")
    if config.from_training:
        defaults = typed(EvaluateConfig, compose("evaluate", [], CONFIG_DIR / "evaluate"))
        for key, value in config:
            if key not in PLACES and value != getattr(defaults, key):
                keys = f"from_training=true {key}={','.join(listed(value))}"
                raise UserError(f"{keys}: nothing is generated or graded anew; drop one")


def runs(patterns: list[str], output_dir: str) -> list[str]:
    """The runs that `run` names or matches, in order. Raises UserError if none does."""
    known, names = _known(output_dir), []
    for pattern in patterns:
        names += (matches := [pattern] if pattern in known else matching(known, pattern))
        if not matches:
            has = nearest(pattern, known) if known else "none: uv run train.py"
            raise UserError(f"run={pattern}: no such run in output_dir={output_dir}; it has {has}")
    return list(dict.fromkeys(names))


def _known(output_dir: str) -> list[str]:
    paths = Path(output_dir).glob(f"*/{SAVED}")
    return sorted((path.parents[1].name for path in paths), key=run_order)


def find_one(config: OneCheckpoint) -> tuple[TrainConfig, Target]:
    """The config of a run's training, and the checkpoint that `checkpoint=` names; a pattern for
    the run becomes its name. Raises UserError before anything heavy loads."""
    if not re.fullmatch(r"best|last|(checkpoint-)?\d+", config.checkpoint):
        raise UserError(f"checkpoint={config.checkpoint}: set best, last or checkpoint-<step>")
    if len(names := runs([config.run], config.output_dir)) > 1:
        raise UserError(f"run={config.run}: matches {', '.join(names)}; name one")
    config.run = names[0]
    folder, store = Path(config.output_dir) / config.run, Store(config.results_dir, config.run)
    trained, name = load_config(folder / SAVED), config.checkpoint.removeprefix("checkpoint-")
    training = trained.moved(config.model_path)
    (target,), _ = targets.find(folder, [name], store, trained.task.name)
    locate(training.model.path)
    return training, target


def training_config(config: EvaluateConfig, run: str | None) -> TrainConfig:
    """The config of a run, or of an experiment, or config/train.yaml with this model."""
    if run:
        return load_config(Path(config.output_dir) / run / SAVED)
    if config.experiment:
        return typed(TrainConfig, compose("train", [f"experiment={config.experiment}"]))
    overrides = ["~experiment", "rollouts_per_prompt=2", "kept_per_prompt=2"]
    if (CONFIG_DIR / "model" / f"{config.model}.yaml").is_file():
        composed = compose("train", [*overrides, f"model={config.model}"])
    else:
        composed = compose("train", overrides)
        name = re.sub(r"[^\w.]+", "-", config.model).strip("-.").lower()
        composed.model.update(name=name, path=config.model, pad_token=None, load_in_4bit=False)
    composed.experiment = "none"
    return typed(TrainConfig, composed)
