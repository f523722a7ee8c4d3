"""A run's folder: checkpoints/<run>/ with its lock, its config and where it came from.

.hydra/config.yaml  the resolved config        meta.json     git commit, versions, hardware
metrics.jsonl       one line a step            rollouts...   the ledger
checkpoint-<step>/  adapter, state, meta.json  .lock         pid and host of the trainer
"""

import fcntl
import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pods import checkpoints, distributed, ledger
from pods.checkpoints import Checkpoint
from pods.cli import UserError
from pods.config import TrainConfig
from pods.files import write_atomic
from pods.upgrade import load

# Keys that a resumed run may change; any other would make it another experiment.
MAY_CHANGE = (
    "budget.", "max_steps", "logger.", "checkpoint.", "ledger.", "evaluation.", "resume",
    "output_dir", "data_dir", "backend.threads", "engine.",
)  # fmt: skip
MAY_NOT_CHANGE = ("engine.importance_sampling_correction",)  # part of the loss
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "unsloth", "vllm")


class RunFolder:
    """The folder of one run, held by a lock while a training writes to it."""

    def __init__(self, config: TrainConfig) -> None:
        self.path = Path(config.output_dir) / config.run
        self.config = config

    def __enter__(self) -> "RunFolder":
        distributed.from_main(self._take)
        return self

    def _take(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "a+")  # noqa: SIM115  held to the end
        except OSError as error:
            raise UserError(
                f"output_dir={self.config.output_dir}: {self.path} cannot be written "
                f"({error.strerror}); choose another output_dir"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # freed by the kernel on a kill
        except OSError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "another process"
            self._lock.close()
            raise UserError(
                f"run={self.config.run}: {holder} is training in {self.path}; wait for it, "
                "stop it, or set run=<another name>"
            ) from error
        self._lock.truncate(0)
        self._lock.write(f"pid {os.getpid()} on {socket.gethostname()}")
        self._lock.flush()

    def __exit__(self, *_: object) -> None:
        if distributed.is_main():
            self._lock.truncate(0)
            self._lock.close()

    def begin(self, start: Checkpoint | None) -> None:
        """Before the first step: save config and provenance of a new run; of a resumed one drop
        the metric lines and ledger records after `start`, which will be written again."""
        step = 0 if start is None else start.step
        if start is None:
            write_atomic(self.path / ".hydra" / "config.yaml", OmegaConf.to_yaml(self.config))
            meta = {"config_hash": config_hash(self.config), **provenance()}
            write_atomic(self.path / "meta.json", json.dumps(meta, indent=2) + "\n")
        ledger.forget_after(self.ledger, step)
        for path in (self.metrics, self.evaluations):
            if path.is_file():
                kept = [line for line in read_metrics(path) if line["step"] <= step]
                write_atomic(path, "".join(json.dumps(line) + "\n" for line in kept))
        for checkpoint in checkpoints.find(self.path):
            if checkpoint.step > step:
                checkpoints.set_aside(checkpoint.path)

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations.jsonl"

    @property
    def ledger(self) -> Path:
        return self.path / "rollouts.jsonl.zst"

    def refuse_changes(self) -> None:
        """Raise UserError naming the keys in which the saved config of the run differs."""
        saved = self.path / ".hydra" / "config.yaml"
        if not saved.is_file():
            raise UserError(f"run={self.config.run}: {saved} is missing; set run=<another name>")
        before, now = (_flat(OmegaConf.structured(one)) for one in (load(saved), self.config))
        differ = {
            key: f"{key} ({before.get(key)} -> {now.get(key)})"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key)
        }
        refused = ", ".join(text for key, text in differ.items() if not _may_change(key))
        if refused:
            raise UserError(
                f"run={self.config.run} was started with another config: {refused}; "
                "restore these keys, or set run=<another name>"
            )
        engine = ", ".join(
            text
            for key, text in differ.items()
            if key.startswith("engine.") and before[key] != "auto"  # the choice that auto made
        )
        if engine:
            print(f"run={self.config.run} resumes with another engine: {engine}", file=sys.stderr)


def _may_change(key: str) -> bool:
    return key.startswith(MAY_CHANGE) and key not in MAY_NOT_CHANGE


def is_training(folder: Path) -> bool:
    """Whether a training holds the lock of the run in `folder`."""
    try:
        with open(folder / ".lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def find_start(config: TrainConfig, folder: RunFolder) -> Checkpoint | None:
    """The checkpoint that config.resume asks to continue, None for a new run.

    Raises UserError: resume=never on a run that exists, a changed config, a path that cannot be
    resumed, or a run whose every checkpoint is damaged.
    """
    existing = sorted(folder.path.glob("checkpoint-*"))
    if config.resume == "never" and existing:
        raise UserError(
            f"resume=never: {folder.path} holds {len(existing)} checkpoints; set run=<another "
            "name>, or resume=auto to continue"
        )
    if config.resume not in ("auto", "never"):
        start = checkpoints.at(config.resume)
        if start.path.parent.resolve() != folder.path.resolve():
            raise UserError(
                f"resume={config.resume}: a checkpoint of another run than run={config.run}; "
                f"set run={start.path.parent.name}"
            )
    else:
        start, skipped = checkpoints.newest_intact(folder.path)
        for line in skipped:
            print(line, file=sys.stderr)
        if start is None and existing:
            raise UserError(
                f"run={config.run}: none of its {len(existing)} checkpoints can be resumed; "
                "set run=<another name>"
            )
    if start is not None:
        refuse_other_ranks(start)
        folder.refuse_changes()
        print(f"resuming {start.path}", file=sys.stderr)
    return start


def refuse_other_ranks(start: Checkpoint) -> None:
    """Raise UserError where the run was started on another number of ranks: each draws rollouts of
    its own and holds its own part of the optimiser's state."""
    before, now = start.meta.get("ranks", 1), distributed.world_size()
    if before != now:
        raise UserError(
            f"{start.path} was written by {before} processes, and this run has {now}; launch with "
            f"--num_processes {before}, or set run=<another name>"
        )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The metric lines of a run, one dict a step; a last line torn by a kill is left out."""
    lines = path.read_text().splitlines()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise UserError(f"{path}:{number}: not JSON ({error}); restore or remove it") from error
    return records


def config_hash(config: TrainConfig) -> str:
    """A short hash of the keys that a resume may not change."""
    values = _flat(OmegaConf.structured(config))
    fixed = {key: value for key, value in values.items() if not _may_change(key)}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]


def provenance() -> dict[str, Any]:
    """Git commit, package versions and hardware, stored beside every result."""
    import torch

    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "git_commit": _git_commit(),
        "versions": versions,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpu_count": os.cpu_count(),
        "gpu": gpu,
    }


def _git_commit() -> str | None:
    """The commit of this source tree, with `-dirty` where tracked files differ."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if OmegaConf.is_dict(value):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = (
                OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
            )
    return flat
