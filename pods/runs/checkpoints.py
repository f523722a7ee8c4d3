"""Atomic checkpoints, written under a temporary name, flushed and renamed. Their meta.json, written
last, lists every file with size and SHA-256, so that no damaged one is used."""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pydantic import BaseModel

from pods import ranks
from pods.files import place_aside, remove, sync_folder
from pods.models import weights

TRAINING_STATE = (  # files that only a resume needs; without one of the first two it is removed
    "optimizer.pt",
    "latest",
    "pods_state.json",
    "scheduler.pt",
    "scaler.pt",
    "global_step*",  # DeepSpeed's, as "latest"
    "zero_to_fp32.py",
    "zero_to_torch.py",
    "rng_state*.pth",  # of earlier versions
)
MOMENTS = ("exp_avg", "exp_avg_sq", "state1", "state2")  # of torch's and bitsandbytes' Adam


class File(BaseModel):
    """What meta.json says of a file."""

    bytes: int
    sha256: str


class Meta(BaseModel):
    """The form of meta.json; further facts are in it."""

    step: int
    files: dict[str, File]
    train_seconds: float = 0.0
    seconds_before_step: float = 0.0  # train_seconds at the start of its newest step
    outside_seconds: dict[str, float] = {}
    checkpoint_best: dict[str, Any] | None = None
    ranks: int = 1


@dataclass(frozen=True)
class Checkpoint:
    """One finished checkpoint folder; `meta` as written by `write`."""

    path: Path
    step: int
    meta: dict[str, Any]

    @property
    def resumable(self) -> bool:
        """Whether the full training state is still there (checkpoint.keep removes old ones)."""
        return has_state(self.path)


def write(trainer: Any, run_folder: Path, meta: dict[str, Any]) -> Path:
    """Save weights, tokenizer, training state and `meta` in <run_folder>/checkpoint-<step>.

    trainer: a Trainer with `save_state(folder)`, whose step names the checkpoint. meta: what else
    meta.json holds. Every rank calls this and saves its part; a failure of one ends the others.
    Raises OSError if it cannot be written; older checkpoints stay intact. Returns its folder.
    """
    step = trainer.state.global_step
    final = run_folder / f"checkpoint-{step}"
    temporary = run_folder / f".checkpoint-{step}.tmp"
    if ranks.is_main():
        shutil.rmtree(temporary, ignore_errors=True)  # left by a kill
    ranks.wait()
    try:
        trainer.save_state(temporary)
        ranks.wait()
        if ranks.is_main():
            trainer.state.save_to_json(str(temporary / "trainer_state.json"))
            seal(temporary, {"step": step, **meta})
            if final.exists():  # a damaged one, after a resume from an older checkpoint
                set_aside(final)
            os.rename(temporary, final)
            sync_folder(run_folder)
        ranks.wait()
    except Exception as error:  # safetensors and torch raise their own types for a full disk
        reason = str(error)
        try:  # torch names only a position in the file
            with TemporaryFile(dir=run_folder) as file:
                file.write(bytes(2**20))
        except OSError as refusal:
            reason = refusal.strerror
        if ranks.is_main():
            shutil.rmtree(temporary, ignore_errors=True)
        if ranks.wait_for_lost():  # the disk is not at fault
            raise
        raise OSError(f"{final} could not be written ({reason})") from error
    return final


def seal(folder: Path, meta: dict[str, Any]) -> None:
    """Write meta.json with the digest of every file, and flush all of it to the disk."""
    for unused in ("training_args.bin", "README.md"):  # a pickle, and PEFT's empty model card
        (folder / unused).unlink(missing_ok=True)
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(folder))
            files[name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
    (folder / "meta.json").write_text(json.dumps({**meta, "files": files}, indent=2) + "\n")
    for path in (folder, *folder.rglob("*")):
        sync_folder(path)  # files too: fsync needs only a descriptor


def set_aside(path: Path) -> None:
    """Move a checkpoint that is in the way to <run>/set-aside/, which nothing reads."""
    ranks.say(f"{path} moved to {path.rename(place_aside(path))}")


def prune(run_folder: Path, keep: int | None) -> None:
    """Remove the training state of all but the newest `keep` checkpoints; adapters all stay."""
    if not keep:
        return
    # Only these are read: else each of many checkpoints would read all before it.
    with_state = [path for path in run_folder.glob("checkpoint-*") if has_state(path)]
    for checkpoint in finished(with_state)[:-keep]:
        for pattern in TRAINING_STATE:
            for path in checkpoint.path.glob(pattern):
                remove(path)


def has_state(path: Path) -> bool:
    """Whether a checkpoint can be resumed, or only evaluated."""
    return (path / "optimizer.pt").is_file() or (path / "latest").is_file()


def find(run_folder: Path, name: str = "checkpoint-*") -> list[Checkpoint]:
    """The finished checkpoints of a run by step; name: a pattern."""
    return finished(run_folder.glob(name))


def finished(paths: Iterable[Path]) -> list[Checkpoint]:
    """The folders with a meta.json of their own step, by step."""
    checkpoints = []
    for path in paths:
        with suppress(OSError, ValueError):
            step = int(path.name.removeprefix("checkpoint-"))
            meta = json.loads((path / "meta.json").read_text())
            if Meta.model_validate(meta).step == step:
                checkpoints.append(Checkpoint(path, step, meta))
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.step)


def damage(checkpoint: Checkpoint) -> str | None:
    """The fault in a checkpoint's files, or None. Removed training state is no damage."""
    for name, expected in checkpoint.meta["files"].items():
        path = checkpoint.path / name
        if not path.is_file():
            top = Path(name).parts[0]
            removable = any(fnmatch(top, pattern) for pattern in TRAINING_STATE)
            if removable and not checkpoint.resumable:
                continue
            return f"{name} is missing"
        size = path.stat().st_size
        if size != expected["bytes"]:
            return f"{name} has {size} bytes, not {expected['bytes']}"
        if digest(path) != expected["sha256"]:
            return f"{name} was altered"
    return weights.fault(checkpoint.path)


def moments_damage(checkpoint: Path) -> str | None:
    """The fault in Adam's moments, or None: those of another shape would end the process."""
    import torch
    from safetensors import safe_open

    file = checkpoint / "optimizer.pt"
    if not file.is_file():  # DeepSpeed's own
        return None
    states = torch.load(file, map_location="cpu", weights_only=True).get("state", {})
    moments = [state[name] for state in states.values() for name in MOMENTS if name in state]
    shapes = Counter(tuple(moment.shape) for moment in moments)
    trained: Counter = Counter()
    for saved in checkpoint.glob("*.safetensors") if shapes else ():
        with safe_open(saved, framework="pt") as tensors:
            trained.update(tuple(tensors.get_slice(n).get_shape()) for n in tensors.keys())  # noqa: SIM118
    for shape, many in shapes.items():
        if many > 2 * trained[shape]:
            return f"{file.name}: {many} moments of shape {shape} fit no weight of the checkpoint"
    return None


def newest_intact(run: Path, name: str = "checkpoint-*") -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that can be resumed, and why no newer one can; name: a pattern."""
    finished = find(run, name)
    unfinished = sorted({*run.glob(name)} - {checkpoint.path for checkpoint in finished})
    problems = [f"{path}: meta.json is missing, unreadable or another's" for path in unfinished]
    for checkpoint in reversed(finished):
        problem = damage(checkpoint)
        if problem is None and not checkpoint.resumable:
            problem = "its training state was removed (checkpoint.keep)"
        problem = problem or moments_damage(checkpoint.path)
        if problem is None:
            return checkpoint, problems
        problems.append(f"{checkpoint.path}: {problem}")
    return None, problems


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
