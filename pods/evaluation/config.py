"""The shape of config/evaluate/evaluate.yaml, its rules, and the config a run was trained with.

The published script reads the model and the task out of the run's name.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from pydantic import Field

from pods import tasks
from pods.config.command import CONFIG_DIR, compose, load_config, typed
from pods.config.errors import UserError
from pods.config.keys import Section, Text, TrainConfig
from pods.models import locate
from pods.runs.results import run_order
from rewards import VERSIONS

METRICS = {"ans_acc": "answer", "both_acc": "both"}  # as a figure and as our details name them
OF_TRAINING = ("run", "from_training", "output_dir", "results_dir")  # keys beside from_training


class OneCheckpoint(Section):
    """The keys that chat.py and export.py share."""

    run: Text
    checkpoint: Text
    model_path: Text | None
    output_dir: Text
    results_dir: Text

    def check(self) -> None:
        """Every rule of these keys, before anything heavy loads. Raises UserError."""
        if not re.fullmatch(r"best|last|(checkpoint-)?\d+", self.checkpoint):
            line = f"checkpoint={self.checkpoint}: must be best, last or checkpoint-<step>"
            raise UserError(line)
        if len(names := runs(self)) > 1:
            raise UserError(f"run={self.run}: matches {', '.join(map(str, names))}; name one")
        self.run = str(names[0])


class EvaluateConfig(Section):
    run: list[Text] | Text | None
    experiment: Text | None
    model: Text | None
    checkpoints: list[str | int] | str | int
    tasks: list[Text] | Text | None
    questions: int | None = Field(ge=1)
    repeats: int = Field(ge=1)
    seed: int = Field(ge=0)
    rewards: list[Text] | Text | None
    pass_at: list[int]
    select_on: Literal["validation"] | None
    metric: Text
    from_training: bool
    engine: Literal["auto", "vllm", "transformers", "unsloth"]  # unsloth: refused by choose
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


AnyConfig = EvaluateConfig | OneCheckpoint


def check(config: EvaluateConfig) -> None:
    """Every rule of the config alone, before anything heavy loads. Raises UserError."""
    for problem in _problems(config):
        raise UserError(problem)


def check_files(config: EvaluateConfig) -> None:
    """Raise UserError for a model, data_dir or results_dir that is not where the config says."""
    training = moved(training_config(config), config)
    if not config.from_training:
        locate(training.model.path)
    if config.data_dir and not Path(config.data_dir).is_dir():
        raise UserError(f"data_dir={config.data_dir}: no such folder; correct the path")
    if Path(config.results_dir).is_file():
        raise UserError(f"results_dir={config.results_dir}: is a file; choose a folder")


def _problems(config: EvaluateConfig) -> Iterator[str]:
    if not config.pass_at or min(config.pass_at) < 1:
        yield f"pass_at={config.pass_at}: needs whole numbers of 1 or more, e.g. [1,5]"
    repeats = 1 if config.temperature == 0 else config.repeats  # greedy ones do not differ
    known = [*METRICS, *(f"pass@{k}" for k in config.pass_at if k <= repeats)]
    if config.metric not in known:
        yield f"metric={config.metric}: must be one of {', '.join(known)}"
    for name in as_list(config.checkpoints) or ["null"]:
        if name not in ("all", "best", "last") and not name.isdigit():
            yield f"checkpoints={name}: must be all, best, last, or a list of steps"
    yield from _source_problems(config)
    for key, valid in (("tasks", tasks.NAMES), ("rewards", VERSIONS)):
        for name in [name for name in as_list(getattr(config, key)) if name not in valid]:
            yield f"{key}={name}: unknown; choose from {', '.join(valid)}"


def _source_problems(config: EvaluateConfig) -> Iterator[str]:
    """Keys that do not go with run=null, only with it, or not with from_training=true."""
    for key in ("experiment", "model"):
        if config.run is not None and (value := getattr(config, key)):
            yield f"run={config.run} {key}={value}: needs run=null; drop one"
    if config.experiment and config.model:
        yield f"experiment={config.experiment} model={config.model}: drop one"
    if config.model and not as_list(config.tasks):
        yield f"model={config.model}: no run says the task; set tasks=[gsm8k]"
    if config.run is None and (config.select_on or as_list(config.checkpoints) != ["all"]):
        key = "select_on" if config.select_on else "checkpoints"
        yield f"{key}={getattr(config, key)}: a base model has no checkpoints; set run"
    if config.from_training and config.run is None:
        yield "from_training=true run=null: name the run whose scores are meant"
    if config.from_training:
        composed = compose("evaluate", [], CONFIG_DIR / "evaluate")
        for key, default in vars(typed(EvaluateConfig, composed)).items():
            if key not in OF_TRAINING and (value := getattr(config, key)) != default:
                line = f"from_training=true {key}={value}: nothing is generated or graded anew"
                yield f"{line}; drop one"


def as_list(value: list[str] | str | None) -> list[str]:
    """`tasks=gsm8k` and `tasks=[gsm8k]` mean the same; null is the empty list. Each name once."""
    values = [] if value is None else value if isinstance(value, list) else [value]
    return list(dict.fromkeys(map(str, values)))


def runs(config: AnyConfig) -> list[str | None]:
    """The runs that `run` names or matches, in order; [None] for a base model alone."""
    known, names = _known(config), []
    for pattern in as_list(config.run):
        matches = [pattern] if pattern in known else [n for n in known if fnmatch(n, pattern)]
        if not matches:
            has = f"it has {', '.join(known[-20:])}" if known else "it has none: uv run train.py"
            raise UserError(f"run={pattern}: no such run in output_dir={config.output_dir}; {has}")
        names += matches
    return list(dict.fromkeys(names)) or [None]


def _known(config: AnyConfig) -> list[str]:
    paths = Path(config.output_dir).glob("*/.hydra/config.yaml")
    return sorted((path.parents[1].name for path in paths), key=run_order)


@contextmanager
def renamed_keys(names: dict[str, str]) -> Iterator[None]:
    """Errors of shared code begin with this command's name of their key; names: theirs -> ours."""
    try:
        yield
    except UserError as error:
        error.key = names.get(error.key, error.key)
        raise


def training_config(config: AnyConfig) -> TrainConfig:
    """The config the run was trained with, or with run=null the experiment's or the model's."""
    if config.run:
        return load_config(Path(config.output_dir) / str(config.run) / ".hydra" / "config.yaml")
    if config.model:
        return _of_model(config.model)
    if not config.experiment:
        raise UserError(
            "run=null: name a run, or the base model to score: experiment=quickstart, or "
            f"model=<hub id or folder> tasks=[gsm8k]; runs: {', '.join(_known(config)) or 'none'}"
        )
    return typed(TrainConfig, compose("train", [f"experiment={config.experiment}"]))


def moved(training: TrainConfig, config: AnyConfig) -> TrainConfig:
    """The training's config with the paths that the command replaces."""
    path = config.model_path or training.model.path
    model = training.model.model_copy(update={"path": path})
    data_dir = getattr(config, "data_dir", None) or training.data_dir
    return training.model_copy(update={"model": model, "data_dir": data_dir})


def _of_model(model: str) -> TrainConfig:
    """The values of config/train.yaml for a model of config/model, a hub id or a folder."""
    known = (CONFIG_DIR / "model" / f"{model}.yaml").is_file()
    sizes = ["rollouts_per_prompt=2", "kept_per_prompt=2"]
    chosen = [f"model={model}"] if known else []
    composed = compose("train", ["~experiment", *sizes, *chosen])
    composed.experiment = "none"
    if not known:
        name = re.sub(r"[^\w.]+", "-", model).strip("-.").lower()
        composed.model.name, composed.model.path, composed.model.pad_token = name, model, None
        composed.model.load_in_4bit = False
    return typed(TrainConfig, composed)
