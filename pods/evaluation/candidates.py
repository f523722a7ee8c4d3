"""The checkpoints of a run that can be scored; every other folder gets a line that says why not.

The published script scores whatever a folder holds, and hides the errors of its merge.
"""

import json
from pathlib import Path
from statistics import mean

from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import is_adapter, same_model
from pods.evaluation.config import OneCheckpoint, reported_metric, training_config
from pods.evaluation.evaluation import Summary, Target
from pods.evaluation.records import Store
from pods.runs import checkpoints, results
from pods.runs import folder as runs


def find(
    folder: Path, base: str, summary: Summary, seen: set[str]
) -> tuple[list[Target], list[str]]:
    """New checkpoints of `base` by step, and a line per bad one; all are added to `seen`."""
    finished = {checkpoint.path: checkpoint for checkpoint in checkpoints.find(folder)}
    found, problems = [], []
    for path in folder.glob("checkpoint-*"):
        if path.name in seen:
            continue
        seen.add(path.name)
        try:
            found.append(_target(path, finished.get(path), base, summary))
        except (ValueError, OSError, KeyError) as error:
            problems.append(f"{path}: {error}")
    return sorted(found, key=lambda target: target.step), sorted(problems)


def one(config: OneCheckpoint) -> tuple[TrainConfig, Target]:
    """The config of a run's training, and the checkpoint that `checkpoint=` names."""
    training, folder = training_config(config), Path(config.output_dir) / config.run
    store = Store(Path(config.results_dir), config.run)
    wanted = config.checkpoint.removeprefix("checkpoint-")
    metric = reported_metric(training.task.name, training.model.name)
    seen = left_out(folder, [wanted], store, training.task.name, metric)
    base = training_config(config, moved=False).model.path
    found, problems = find(folder, base, Summary(store.summary, store), seen)
    if not found:
        why = "; ".join(problems) or f"{folder} has none yet; wait for one"
        raise UserError(f"checkpoint={config.checkpoint}: {why}")
    return training, found[0]


def left_out(folder: Path, wanted: list[str], store: Store, task: str, metric: str) -> set[str]:
    """The folders of checkpoints that `checkpoints=<wanted>` does not ask for.

    Raises UserError: a step without a checkpoint, or `best` without validation scores.
    """
    names = {path.name for path in folder.glob("checkpoint-*")}
    steps = [checkpoint.step for checkpoint in checkpoints.find(folder)]
    if "all" in wanted or not steps:
        return set()
    for one in wanted:
        if one == "best":
            step = _best(store, folder, task, metric)
        else:
            step = steps[-1] if one == "last" else int(one)
        if step not in steps:
            listed = ", ".join(map(str, steps))
            raise UserError(f"checkpoints={step}: no such checkpoint in {folder}; it has {listed}")
        names.discard(f"checkpoint-{step}")
    return names


def _best(store: Store, folder: Path, task: str, metric: str) -> int:
    """The step of highest `metric` (ans_acc for pass@k) on validation questions of `task`, the
    earliest of equals: of select_on=validation, else as the training noted it. Never by test
    questions."""
    path = store.folder / "validation.json"
    scored = {
        step: mean(getattr(entry, metric, entry.ans_acc))
        for step, checkpoint in (results.read(path) if path.is_file() else {}).items()
        for name, entry in checkpoint.datasets.items()
        if name.split(".")[0] == task and entry.ans_acc
    }
    if scored:
        return max(sorted(scored), key=lambda step: scored[step])
    if noted := runs.checkpoint_best(folder):
        return int(noted["checkpoint"].rpartition("-")[2])
    raise UserError(
        f"checkpoints=best: no checkpoint of {folder} has validation scores on {task}; run "
        "evaluate_run.py select_on=validation first, or train with evaluation.split=validation"
    )


def _target(
    path: Path, checkpoint: checkpoints.Checkpoint | None, base: str, summary: Summary
) -> Target:
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
    noted = meta.pop("files", {})  # sizes and digests, which the results do not show
    digests = [noted.get(w.name, {}).get("sha256") or checkpoints.digest(w) for w in weights]
    if not summary.store.knows(path.name, "+".join(digests)):
        scored = summary.store.folder / path.name
        raise ValueError(f"other weights than {scored}; remove that folder")
    return Target(summary, path.name, path, meta, rank)


def _lora_rank(path: Path, base: str) -> int:
    adapter = json.loads((path / "adapter_config.json").read_text())
    trained = adapter.get("base_model_name_or_path")
    if not isinstance(trained, str) or not same_model(trained, base):
        raise ValueError(f"adapter of another base ({trained}), the run's is {base}")
    return max([adapter["r"], *adapter.get("rank_pattern", {}).values()])
