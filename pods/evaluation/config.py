"""The shape of config/evaluate/evaluate.yaml, its rules, and the config a run was trained with.

Called by evaluate_run.py; the published script reads the model and the task out of the run's name.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods import tasks
from pods.cli import CONFIG_DIR, UserError, one_line, typed
from pods.config import TrainConfig
from rewards import VERSIONS

BESIDE_FROM_TRAINING = ("run", "from_training", "output_dir", "results_dir")  # all it can heed


@dataclass
class EvaluateConfig:
    run: str | None = MISSING
    experiment: str | None = MISSING
    tasks: Any = MISSING  # list[str] | str | None
    repeats: int = MISSING
    seed: int = MISSING
    rewards: Any = MISSING  # list[str] | str | None
    pass_at: list[int] = MISSING
    select_on: str | None = MISSING
    watch: bool = MISSING
    from_training: bool = MISSING
    backend: str = MISSING
    model_path: str | None = MISSING
    data_dir: str | None = MISSING
    temperature: float | None = MISSING
    top_p: float | None = MISSING
    top_k: int | None = MISSING
    max_tokens: int | None = MISSING
    batch_size: int = MISSING
    window: int = MISSING
    max_loras: int = MISSING
    gpu_memory_utilization: float = MISSING
    output_dir: str = MISSING
    results_dir: str = MISSING


def check(config: EvaluateConfig) -> None:
    """Every rule of the config alone, before anything heavy loads. Raises UserError."""
    for key in ("repeats", "batch_size", "window", "max_loras", "max_tokens"):
        value = getattr(config, key)
        if value is not None and value < 1:
            raise UserError(f"{key}={value}: must be 1 or more")
    if config.temperature is not None and not 0 <= config.temperature < float("inf"):
        raise UserError(f"temperature={config.temperature}: must be 0 (greedy) or more")
    for key in ("top_p", "gpu_memory_utilization"):
        value = getattr(config, key)
        if value is not None and not 0 < value <= 1:
            raise UserError(f"{key}={value}: must lie in (0, 1]")
    if config.top_k is not None and config.top_k < 0:
        raise UserError(f"top_k={config.top_k}: must be 0 (all tokens) or more")
    if not config.pass_at or min(config.pass_at) < 1:
        raise UserError(f"pass_at={config.pass_at}: needs whole numbers of 1 or more, e.g. [1,5]")
    if config.select_on not in (None, "validation"):
        raise UserError(f"select_on={config.select_on}: must be null or validation")
    if config.select_on and config.watch:
        raise UserError("select_on=validation watch=true: choosing needs all checkpoints; drop one")
    if config.from_training:
        _check_from_training(config)
    _check_names("tasks", as_list(config.tasks), tasks.NAMES)
    _check_names("rewards", as_list(config.rewards), VERSIONS)


def _check_from_training(config: EvaluateConfig) -> None:
    """Refuse what asks for other scores than those that training took."""
    if config.run is None:
        raise UserError("from_training=true run=null: name the run whose scores are meant")
    for override in HydraConfig.get().overrides.task:
        if override.split("=")[0] not in BESIDE_FROM_TRAINING:
            raise UserError(
                f"from_training=true {override}: nothing is generated or graded anew; drop one"
            )


def _check_names(key: str, names: list[str], valid: tuple[str, ...]) -> None:
    for name in names:
        if name not in valid:
            raise UserError(f"{key}={name}: unknown; choose from {', '.join(valid)}")


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
    try:
        # A key that is younger than the run takes the default that train.py gives it today.
        return typed(TrainConfig, OmegaConf.merge(_compose([]), OmegaConf.load(path)))
    except (OmegaConfBaseException, ValueError, OSError, yaml.YAMLError) as error:
        raise UserError(f"{path}: not a config that train.py saved ({one_line(error)})") from None


def _composed(config: EvaluateConfig) -> TrainConfig:
    if not config.experiment:
        raise UserError(
            "run=null: name a run, or an experiment whose base model is to be scored "
            f"(experiment=quickstart); {_runs(config)}"
        )
    known = sorted(file.stem for file in (CONFIG_DIR / "experiment").glob("*.yaml"))
    if config.experiment not in known:
        raise UserError(f"experiment={config.experiment}: unknown; one of {', '.join(known)}")
    return typed(TrainConfig, _compose([f"experiment={config.experiment}"]))


def _compose(overrides: list[str]) -> DictConfig:
    """config/train.yaml, as `train.py <overrides>` would see it."""
    ConfigStore.instance().store("train_schema", TrainConfig)
    GlobalHydra.instance().clear()  # of this command's own folder, which nothing reads after this
    with hydra.initialize_config_dir(str(CONFIG_DIR), version_base=None):
        return hydra.compose("train", overrides=overrides)


def _runs(config: EvaluateConfig) -> str:
    found = Path(config.output_dir).glob("*/.hydra/config.yaml")
    names = sorted(path.parents[1].name for path in found)
    return f"there are: {', '.join(names)}" if names else "there are none yet: uv run train.py"
