"""The shape of config/evaluate/evaluate.yaml, its rules, and the config a run was trained with.

The published script reads the model and the task out of the run's name.
"""

from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING

from pods import tasks
from pods.cli import CONFIG_DIR, UserError, compose, typed
from pods.config import TrainConfig
from pods.schema import at_least, broken, one_of, share
from pods.upgrade import load
from rewards import VERSIONS

METRICS = {"ans_acc": "answer", "both_acc": "both"}  # as a figure and as our details name them
BESIDE_FROM_TRAINING = ("run", "from_training", "output_dir", "results_dir")  # all it can heed


@dataclass
class EvaluateConfig:
    run: str | None = MISSING
    experiment: str | None = MISSING
    tasks: Any = MISSING  # list[str] | str | None
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


def check(config: EvaluateConfig) -> None:
    """Every rule of the config alone, before anything heavy loads. Raises UserError."""
    for problem in broken(config):
        raise UserError(problem)
    if not config.pass_at or min(config.pass_at) < 1:
        raise UserError(f"pass_at={config.pass_at}: needs whole numbers of 1 or more, e.g. [1,5]")
    if config.select_on and config.watch:
        raise UserError("select_on=validation watch=true: choosing needs all checkpoints; drop one")
    known = [*METRICS, *(f"pass@{k}" for k in config.pass_at if k <= config.repeats)]
    if config.metric not in (None, *known):
        raise UserError(f"metric={config.metric}: must be null or one of {', '.join(known)}")
    if config.from_training:
        _check_from_training(config)
    names = [("tasks", config.tasks, tasks.NAMES), ("rewards", config.rewards, VERSIONS)]
    for key, value, valid in names:
        for name in [name for name in as_list(value) if name not in valid]:
            raise UserError(f"{key}={name}: unknown; choose from {', '.join(valid)}")


def _check_from_training(config: EvaluateConfig) -> None:
    """Refuse keys that ask for other scores than those of the training."""
    if config.run is None:
        raise UserError("from_training=true run=null: name the run whose scores are meant")
    for override in HydraConfig.get().overrides.task:
        if override.split("=")[0] not in BESIDE_FROM_TRAINING:
            raise UserError(
                f"from_training=true {override}: nothing is generated or graded anew; drop one"
            )


def reported_metric(config: EvaluateConfig, task: str, model: str) -> str:
    """The metric to choose by: the command's, or that of this task's and base model's figures."""
    if config.metric:
        return config.metric
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


def training_config(config: EvaluateConfig, moved: bool = True) -> TrainConfig:
    """The config the run was trained with, or with run=null the experiment's.

    moved: with the paths that the command replaces (model_path, data_dir).
    """
    training = _saved(config) if config.run else _composed(config)
    if moved and config.model_path:
        training.model = replace(training.model, path=config.model_path)
    if moved and config.data_dir:
        training.data_dir = config.data_dir
    return training


def _saved(config: EvaluateConfig) -> TrainConfig:
    path = Path(config.output_dir) / str(config.run) / ".hydra" / "config.yaml"
    if not path.is_file():
        raise UserError(f"run={config.run}: no such run in {config.output_dir}; {_runs(config)}")
    return load(path)


def _composed(config: EvaluateConfig) -> TrainConfig:
    if not config.experiment:
        raise UserError(
            "run=null: name a run, or an experiment whose base model is to be scored "
            f"(experiment=quickstart); {_runs(config)}"
        )
    known = sorted(file.stem for file in (CONFIG_DIR / "experiment").glob("*.yaml"))
    if config.experiment not in known:
        raise UserError(f"experiment={config.experiment}: unknown; one of {', '.join(known)}")
    return typed(TrainConfig, compose("train", TrainConfig, [f"experiment={config.experiment}"]))


def _runs(config: EvaluateConfig) -> str:
    found = Path(config.output_dir).glob("*/.hydra/config.yaml")
    names = sorted(path.parents[1].name for path in found)
    return f"there are: {', '.join(names)}" if names else "there are none yet: uv run train.py"
