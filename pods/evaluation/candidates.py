"""The checkpoints of a run that can be scored; every other folder gets a line that says why not.

The published script scores whatever a folder holds, and hides the errors of its merge.
"""

import json
from pathlib import Path, PurePath

from pods import checkpoints
from pods.engines import is_adapter
from pods.evaluation.evaluation import Summary, Target


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


def same_model(one: str, other: str) -> bool:
    """Whether two paths or hub ids name one model: PEFT notes where it lay on the training machine.

    Unsloth notes its own quantised copy, unsloth/<name in lower case>-....
    """
    first, second = (
        tuple(part for part in PurePath(path).parts if part not in ("..", "~"))
        for path in (one, other)
    )
    if not first or not second:
        return False
    if "unsloth" in first:
        return first[-1].lower().startswith(second[-1].lower())
    shared = min(len(first), len(second))
    return first[-shared:] == second[-shared:]
