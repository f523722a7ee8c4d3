"""Which checkpoints of a run can be scored? Each other folder gets the reason why not, in words.

The published script scores whatever a folder holds, and hides the errors of its merge.
"""

import json
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pods import checkpoints
from pods.config import TrainConfig
from pods.engines import is_adapter

SHOWN_META = ("files",)  # left out of the results: sizes and digests of the checkpoint's files


@dataclass(frozen=True)
class Candidate:
    """An intact checkpoint: its folder, a digest of its weights, its meta.json, its LoRA rank."""

    path: Path
    digest: str
    meta: dict[str, Any]
    lora_rank: int | None


def find(folder: Path, config: TrainConfig, seen: set[str]) -> tuple[list[Candidate], list[str]]:
    """Checkpoints by step that are not in `seen` (they are added to it), and a line per bad one."""
    finished = {checkpoint.path.name: checkpoint for checkpoint in checkpoints.find(folder)}
    found, problems = [], []
    for path in folder.glob("checkpoint-*"):
        if path.name in seen:
            continue
        seen.add(path.name)
        try:
            found.append(_candidate(path, finished.get(path.name), config))
        except (ValueError, OSError, KeyError) as error:
            problems.append(f"{path}: {error}")
    return sorted(found, key=lambda c: c.meta["step"]), sorted(problems)


def _candidate(
    path: Path, checkpoint: checkpoints.Checkpoint | None, config: TrainConfig
) -> Candidate:
    """Raises ValueError saying what is wrong with the folder."""
    if checkpoint is None:
        raise ValueError("not a finished checkpoint (its name, or meta.json missing or unreadable)")
    if checkpoint.meta.get("step") != checkpoint.step:
        raise ValueError(f"meta.json is of step {checkpoint.meta.get('step')}, of another folder")
    if problem := checkpoints.damage(checkpoint):
        raise ValueError(problem)
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise ValueError("neither an adapter nor a model's weights (no .safetensors)")
    rank = _lora_rank(path, config) if is_adapter(path) else None
    digests = [checkpoint.meta.get("files", {}).get(w.name, {}).get("sha256") for w in weights]
    digest = "+".join(d or checkpoints.digest(w) for d, w in zip(digests, weights, strict=True))
    meta = {key: value for key, value in checkpoint.meta.items() if key not in SHOWN_META}
    return Candidate(path, digest, meta, rank)


def _lora_rank(path: Path, config: TrainConfig) -> int:
    adapter = json.loads((path / "adapter_config.json").read_text())
    base = adapter.get("base_model_name_or_path")
    if not isinstance(base, str) or not same_model(base, config.model.path):
        raise ValueError(f"adapter of another base ({base}), the run's is {config.model.path}")
    return max([adapter["r"], *adapter.get("rank_pattern", {}).values()])


def same_model(one: str, other: str) -> bool:
    """Whether two paths or hub ids name one model: PEFT notes where it lay on the training machine.

    Unsloth notes its own quantised copy, unsloth/<name in lower case>-....
    """
    first, second = PurePath(one).parts, PurePath(other).parts
    if not first or not second:
        return False
    if "unsloth" in first:
        return first[-1].lower().startswith(second[-1].lower())
    shared = min(len(first), len(second))
    return first[-shared:] == second[-shared:]
