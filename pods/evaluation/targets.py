"""The checkpoints of a run that can be scored; every other folder gets a line that says why not.

The published script scores whatever a folder holds, and hides the errors of its merge.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.evaluation.config import OneCheckpoint, moved, training_config
from pods.evaluation.records import Store
from pods.models import is_adapter, same_model
from pods.runs import checkpoints
from pods.runs.checkpoints import Checkpoint
from pods.runs.folder import checkpoint_best


@dataclass(frozen=True)
class Target:
    """One policy to score, and the files of its scores; weights: None for the base model."""

    store: Store
    name: str = "base"
    weights: Path | None = None
    meta: dict[str, Any] = field(default_factory=dict)  # the checkpoint's, for the results
    digest: str = ""  # of the weights
    lora_rank: int | None = None

    @property
    def step(self) -> int:
        return 0 if self.weights is None else int(self.name.removeprefix("checkpoint-"))


def find(
    folder: Path, steps: set[int] | None, base: str, store: Store
) -> tuple[list[Target], list[str]]:
    """The checkpoints of a run by step, and a line for each that cannot be scored; base: the
    model.path of its training; steps: None for all."""
    finished = {checkpoint.path: checkpoint for checkpoint in checkpoints.find(folder)}
    targets, problems = [], []
    for path in folder.glob("checkpoint-*"):
        if steps is not None and path.name not in {f"checkpoint-{step}" for step in steps}:
            continue
        try:
            targets.append(_target(path, finished.get(path), base, store))
        except (ValueError, OSError, KeyError) as error:
            problems.append(f"{path}: {error}")
    return sorted(targets, key=lambda target: target.step), sorted(problems)


def find_one(config: OneCheckpoint) -> tuple[TrainConfig, Target]:
    """The config of a run's training, and the checkpoint that `checkpoint=` names."""
    trained, folder = training_config(config), Path(config.output_dir) / config.run
    store, name = Store(Path(config.results_dir), config.run), config.checkpoint
    wanted = wanted_steps([name.removeprefix("checkpoint-")], folder, store, trained.task.name)
    targets, problems = find(folder, wanted, trained.model.path, store)
    if not targets:
        why = "; ".join(problems) or f"{folder} has none yet; wait for one"
        raise UserError(f"{name}: {why}", key="checkpoints")
    return moved(trained, config), targets[0]


def wanted_steps(wanted: list[str], folder: Path, store: Store, task: str) -> set[int] | None:
    """The steps that `checkpoints=<wanted>` names, None for all. Raises UserError for a step
    without a checkpoint."""
    steps = [checkpoint.step for checkpoint in checkpoints.find(folder)]
    if "all" in wanted or not steps:
        return None
    named = {"best": lambda: _best(folder, store, task), "last": lambda: steps[-1]}
    asked = {named[name]() if name in named else int(name) for name in wanted}
    for step in sorted(asked - {*steps}):
        has = ", ".join(map(str, steps))
        raise UserError(f"{step}: no such checkpoint in {folder}; it has {has}", key="checkpoints")
    return asked


def _best(folder: Path, store: Store, task: str) -> int:
    """The step that validation questions of `task` chose: of select_on=validation, else of the
    training. Never by test questions."""
    name = store.facts.get("best", {}).get(task) or (checkpoint_best(folder) or {}).get(
        "checkpoint"
    )
    if name:
        return int(name.removeprefix("checkpoint-"))
    raise UserError(
        f"best: no checkpoint of {folder} has validation scores on {task}; run evaluate_run.py "
        "select_on=validation first, or train with evaluation.split=validation",
        key="checkpoints",
    )


def _target(path: Path, checkpoint: Checkpoint | None, base: str, store: Store) -> Target:
    """Raises ValueError with the reason why the folder cannot be scored."""
    if checkpoint is None:
        raise ValueError("not a finished checkpoint (its name, or meta.json missing or unreadable)")
    meta = checkpoint.meta
    if meta.get("step") != checkpoint.step:
        raise ValueError(f"meta.json is of step {meta.get('step')}, of another folder")
    if problem := checkpoints.damage(checkpoint):
        raise ValueError(problem)
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise ValueError("neither an adapter nor a model's weights (no .safetensors)")
    rank = _lora_rank(path, base) if is_adapter(path) else None
    files = meta.pop("files", {})  # sizes and digests, which the results do not show
    digest = "+".join(files.get(w.name, {}).get("sha256") or checkpoints.digest(w) for w in weights)
    if not store.same_weights(path.name, digest):
        raise ValueError(f"other weights than {store.folder / path.name}; remove that folder")
    return Target(store, path.name, path, meta, digest, rank)


def _lora_rank(path: Path, base: str) -> int:
    adapter = json.loads((path / "adapter_config.json").read_text())
    trained = adapter.get("base_model_name_or_path")
    if not isinstance(trained, str) or not same_model(trained, base):
        raise ValueError(f"adapter of another base ({trained}), the run's is {base}")
    return max([adapter["r"], *adapter.get("rank_pattern", {}).values()])
