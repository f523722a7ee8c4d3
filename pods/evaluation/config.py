"""The shape of config/evaluate/evaluate.yaml, its rules, and the config a run was trained with.

The published script reads the model and the task out of the run's name.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING

from pods import tasks
from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.config.saved import load
from pods.config.schema import at_least, one_of, share
from pods.runs.results import run_order
from rewards import VERSIONS

METRICS = {"ans_acc": "answer", "both_acc": "both"}  # as a figure and as our details name them
BESIDE_FROM_TRAINING = ("run", "from_training", "output_dir", "results_dir")  # all it can heed


@dataclass
class EvaluateConfig:
    run: Any = MISSING  # list[str] | str | None
    experiment: str | None = MISSING
    model: str | None = MISSING
    checkpoints: Any = MISSING  # list[str | int] | str | int
    tasks: Any = MISSING  # list[str] | str | None
    questions: int | None = at_least(1)
    repeats: int = at_least(1)
    seed: int = at_least(0)
    rewards: Any = MISSING  # list[str] | str | None
    pass_at: list[int] = MISSING
    select_on: str | None = one_of("validation")
    metric: str | None = MISSING
    watch: bool = MISSING
    from_training: bool = MISSING
    engine: str = one_of("auto", "vllm", "transformers", "unsloth")
    model_path: str | None = MISSING
    data_dir: str | None = MISSING
    temperature: float | None = at_least(0)
    top_p: float | None = share()
    top_k: int | None = at_least(0)
    max_tokens: int | None = at_least(1)
    max_sequences: int | None = at_least(1)
    window: int = at_least(1)
    max_loras: int = at_least(1)
    gpu_memory_utilization: float | None = share()
    output_dir: str = MISSING
    results_dir: str = MISSING


@dataclass
class OneCheckpoint:
    """The keys that chat.py and export.py share."""

    run: str = MISSING
    checkpoint: str = MISSING
    seed: int = at_least(0)
    engine: str = one_of("auto", "vllm", "transformers", "unsloth")
    gpu_memory_utilization: float | None = share()
    model_path: str | None = MISSING
    output_dir: str = MISSING
    results_dir: str = MISSING


def check_one(config: OneCheckpoint) -> None:
    """Every rule of the shared keys, before anything heavy loads. Raises UserError."""
    if not re.fullmatch(r"best|last|(checkpoint-)?\d+", config.checkpoint):
        raise UserError(f"checkpoint={config.checkpoint}: must be best, last or checkpoint-<step>")
    if len(found := runs(config)) > 1:
        raise UserError(f"run={config.run}: matches {', '.join(map(str, found))}; name one")
    config.run = str(found[0])


def check(config: EvaluateConfig) -> None:
    """Every rule of the config alone, before anything heavy loads. Raises UserError."""
    if not config.pass_at or min(config.pass_at) < 1:
        raise UserError(f"pass_at={config.pass_at}: needs whole numbers of 1 or more, e.g. [1,5]")
    if config.select_on and config.watch:
        raise UserError("select_on=validation watch=true: choosing needs all checkpoints; drop one")
    repeats = 1 if config.temperature == 0 else config.repeats  # greedy ones do not differ
    known = [*METRICS, *(f"pass@{k}" for k in config.pass_at if k <= repeats)]
    if config.metric not in (None, *known):
        raise UserError(f"metric={config.metric}: must be null or one of {', '.join(known)}")
    for name in as_list(config.checkpoints) or ["null"]:
        if name not in ("all", "best", "last") and not name.isdigit():
            raise UserError(f"checkpoints={name}: must be all, best, last, or a list of steps")
    if config.watch and (as_list(config.checkpoints) != ["all"] or len(runs(config)) > 1):
        raise UserError("watch=true: follows all checkpoints of one run; set checkpoints=all")
    _check_source(config)
    if config.from_training:
        _check_from_training(config)
    names = [("tasks", config.tasks, tasks.NAMES), ("rewards", config.rewards, VERSIONS)]
    for key, value, valid in names:
        for name in [name for name in as_list(value) if name not in valid]:
            raise UserError(f"{key}={name}: unknown; choose from {', '.join(valid)}")


def _check_source(config: EvaluateConfig) -> None:
    """Refuse keys that do not go with run=null, or only with it."""
    for key in ("experiment", "model"):
        value = getattr(config, key)
        if config.run is not None and value:
            raise UserError(f"run={config.run} {key}={value}: needs run=null; drop one")
    if config.experiment and config.model:
        raise UserError(f"experiment={config.experiment} model={config.model}: drop one")
    if config.model and not as_list(config.tasks):
        raise UserError(f"model={config.model}: no run says the task; set tasks=[gsm8k]")
    if config.run is None and (config.select_on or as_list(config.checkpoints) != ["all"]):
        key = "select_on" if config.select_on else "checkpoints"
        raise UserError(f"{key}={getattr(config, key)}: a base model has no checkpoints; set run")


def _check_from_training(config: EvaluateConfig) -> None:
    """Refuse keys that ask for other scores than those of the training."""
    if config.run is None:
        raise UserError("from_training=true run=null: name the run whose scores are meant")
    for override in HydraConfig.get().overrides.task:
        if override.split("=")[0] not in BESIDE_FROM_TRAINING:
            raise UserError(
                f"from_training=true {override}: nothing is generated or graded anew; drop one"
            )


def reported_metric(task: str, model: str) -> str:
    """The metric to choose a checkpoint by: that of the figures with this task and base model."""
    for file in sorted((CONFIG_DIR / "figure").glob("[!_]*.yaml")):
        figure = compose(f"figure/{file.stem}", None, []).figure
        bases = figure.get("base", [])  # figure=all has none
        if figure.get("dataset") == task and any(fnmatch(f"base-{model}", b) for b in bases):
            return str(figure.metric)
    return next(iter(METRICS))


def as_list(value: list[str] | str | None) -> list[str]:
    """`tasks=gsm8k` and `tasks=[gsm8k]` mean the same; null is the empty list. Each name once."""
    values = [] if value is None else value if isinstance(value, list) else [value]
    return list(dict.fromkeys(map(str, values)))


def training_config(config: EvaluateConfig | OneCheckpoint, moved: bool = True) -> TrainConfig:
    """The config the run was trained with, or with run=null the experiment's.

    moved: with the paths that the command replaces (model_path, data_dir).
    """
    training = _saved(config) if config.run else _composed(config)
    if moved and config.model_path:
        training.model = replace(training.model, path=config.model_path)
    if moved and (data_dir := getattr(config, "data_dir", None)):
        training.data_dir = data_dir
    return training


def runs(config: EvaluateConfig | OneCheckpoint) -> list[str | None]:
    """The runs that `run` names or matches, in order; [None] for a base model alone."""
    known, found = _known(config), []
    for one in as_list(config.run):
        matched = [one] if one in known else [name for name in known if fnmatch(name, one)]
        if not matched:
            has = f"it has {', '.join(known[-20:])}" if known else "it has none: uv run train.py"
            raise UserError(f"run={one}: no such run in output_dir={config.output_dir}; {has}")
        found += matched
    return list(dict.fromkeys(found)) or [None]


def _known(config: EvaluateConfig | OneCheckpoint) -> list[str]:
    found = Path(config.output_dir).glob("*/.hydra/config.yaml")
    return sorted((path.parents[1].name for path in found), key=run_order)


@contextmanager
def own_keys(config: EvaluateConfig | OneCheckpoint) -> Iterator[None]:
    """Errors of the code that training shares name the keys of this command."""
    if isinstance(config, OneCheckpoint):
        renamed = {"model.path=": "model_path=", "checkpoints=": "checkpoint="}
    else:
        renamed = {"model.path=": "model=" if config.model else "model_path=", "task=": "tasks="}
    try:
        yield
    except UserError as error:
        text = str(error)
        for theirs, ours in renamed.items():
            text = re.sub(rf"\b{re.escape(theirs)}", ours, text)
        error.args = (text,)
        raise


def _saved(config: EvaluateConfig | OneCheckpoint) -> TrainConfig:
    return load(Path(config.output_dir) / str(config.run) / ".hydra" / "config.yaml")


def _composed(config: EvaluateConfig) -> TrainConfig:
    if config.model:
        return _of_model(config.model)
    if not config.experiment:
        raise UserError(
            "run=null: name a run, or the base model to score: experiment=quickstart, or "
            f"model=<hub id or folder> tasks=[gsm8k]; runs: {', '.join(_known(config)) or 'none'}"
        )
    known = sorted(file.stem for file in (CONFIG_DIR / "experiment").glob("*.yaml"))
    if config.experiment not in known:
        raise UserError(f"experiment={config.experiment}: unknown; one of {', '.join(known)}")
    return typed(TrainConfig, compose("train", TrainConfig, [f"experiment={config.experiment}"]))


def _of_model(model: str) -> TrainConfig:
    """The values of config/train.yaml for a model of config/model, a hub id or a folder."""
    known = (CONFIG_DIR / "model" / f"{model}.yaml").is_file()
    sizes = ["rollouts_per_prompt=1", "kept_per_prompt=1"]
    chosen = [f"model={model}"] if known else []
    composed = compose("train", TrainConfig, ["~experiment", *sizes, *chosen])
    composed.experiment = "none"
    if not known:
        name = re.sub(r"[^\w.]+", "-", model).strip("-.").lower()
        composed.model.name, composed.model.path, composed.model.pad_token = name, model, None
        composed.model.load_in_4bit = False
    return typed(TrainConfig, composed)
