"""A run's folder: checkpoints/<run>/ with its lock, its config and where it came from.

.hydra/config.yaml  the resolved config        meta.json     git commit, versions, hardware
metrics.jsonl       one line a step            rollouts...   the ledger
checkpoint-<step>/  adapter, state, meta.json  .lock         pid and host of the trainer
"""

import contextlib
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

from pods import ranks
from pods.config.command import load_config
from pods.config.errors import UserError
from pods.config.keys import TrainConfig, flat
from pods.config.sweeps import may_change, suffix
from pods.files import write_atomic
from pods.models import initial
from pods.runs import checkpoints, ledger
from pods.runs.checkpoints import Checkpoint

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "unsloth", "vllm")


class RunFolder:
    """The folder of one run, held by a lock while a training writes to it."""

    def __init__(self, config: TrainConfig) -> None:
        self.path = Path(config.output_dir) / config.run
        self.config = config
        self.metrics = self.path / "metrics.jsonl"
        self.evaluations = self.path / "evaluations.jsonl"
        self.ledger = self.path / "rollouts.jsonl.gz"

    def __enter__(self) -> "RunFolder":
        ranks.from_main(self._take)
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
        print(f"pid {os.getpid()} on {socket.gethostname()}", end="", file=self._lock, flush=True)

    def __exit__(self, *_: object) -> None:
        if ranks.is_main():
            self._lock.truncate(0)
            self._lock.close()

    def begin(self, start: Checkpoint | None) -> None:
        """Save config and provenance of a new run; of a resumed one drop the metric lines, ledger
        records and checkpoints after `start`, which will be written again."""
        step = 0 if start is None else start.step
        if start is None:
            write_atomic(
                self.path / ".hydra" / "config.yaml", OmegaConf.to_yaml(self.config.model_dump())
            )
            meta = {"config_hash": config_hash(self.config), **provenance()}
            meta |= initial.facts(self.config)
            write_atomic(self.path / "meta.json", json.dumps(meta, indent=2) + "\n")
        ledger.forget_after(self.ledger, step)
        for path in (self.metrics, self.evaluations):
            if path.is_file():
                kept = [line for line in read_metrics(path) if line["step"] <= step]
                write_atomic(path, "".join(json.dumps(line) + "\n" for line in kept))
        for checkpoint in checkpoints.find(self.path):
            if checkpoint.step > step:
                checkpoints.set_aside(checkpoint.path)

    def note_best(self, best: dict[str, Any] | None) -> None:
        """Name the best checkpoint by validation in the run's meta.json."""
        path = self.path / "meta.json"
        meta = json.loads(path.read_text())
        if meta.get("checkpoint_best") != best:
            write_atomic(path, json.dumps({**meta, "checkpoint_best": best}, indent=2) + "\n")

    def refuse_changes(self) -> None:
        """Raise UserError naming the keys in which the saved config of the run differs."""
        saved = self.path / ".hydra" / "config.yaml"
        if not saved.is_file():
            raise UserError(f"run={self.config.run}: {saved} is missing; set run=<another name>")
        before, now = _flat(load_config(saved)), _flat(self.config)
        differ = {
            key: f"{key} ({before.get(key)} -> {now.get(key)})"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key)
        }
        if refused := [key for key in differ if not may_change(key)]:
            another = self.config.run + suffix(refused[0], now.get(refused[0]))
            raise UserError(
                f"run={self.config.run} was started with another config: "
                f"{', '.join(differ[key] for key in refused)}; restore these keys, or set "
                f"run={another} (a sweep, -m, names its runs so)"
            )
        engine = (key for key in differ if key.startswith("engine."))
        chosen = ", ".join(differ[key] for key in engine if before[key] != "auto")  # not by auto
        if chosen:
            print(f"run={self.config.run} resumes with another engine: {chosen}", file=sys.stderr)


def checkpoint_best(folder: Path) -> dict[str, Any] | None:
    """The checkpoint of a run that validation questions chose in training, with its accuracy."""
    path = folder / "meta.json"
    return json.loads(path.read_text()).get("checkpoint_best") if path.is_file() else None


def is_training(folder: Path) -> bool:
    """Whether a training holds the lock of the run in `folder`."""
    try:
        with open(folder / ".lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    return False


def find_start(config: TrainConfig, folder: RunFolder) -> Checkpoint | None:
    """The checkpoint that config.resume asks to continue, None for a new run.

    Raises UserError: resume=never on a run that exists, a changed config, a path that cannot be
    resumed, or a run whose every checkpoint is damaged.
    """
    run, existing = f"run={config.run}", list(folder.path.glob("checkpoint-*"))
    if config.resume == "never" and existing:
        raise UserError(
            f"resume=never: {folder.path} holds {len(existing)} checkpoints; set run=<another "
            "name>, or resume=auto to continue"
        )
    if config.resume in ("auto", "never"):
        start, skipped = checkpoints.newest_intact(folder.path)
        for line in skipped:
            print(line, file=sys.stderr)
        if start is None and existing:
            raise UserError(
                f"{run}: none of its {len(existing)} checkpoints can be resumed; "
                "set run=<another name>"
            )
    else:
        start = checkpoints.at(config.resume)
        if start.path.parent.resolve() != folder.path.resolve():
            raise UserError(
                f"resume={config.resume}: a checkpoint of another run than {run}; "
                f"set run={start.path.parent.name}"
            )
    if start is not None:
        refuse_other_ranks(start)
        folder.refuse_changes()
        print(f"resuming {start.path}", file=sys.stderr)
    return start


def refuse_other_ranks(start: Checkpoint) -> None:
    """Raise UserError where another number of ranks, each with its part of the state, wrote it."""
    before, now = start.meta.get("ranks", 1), ranks.world_size()
    if before != now:
        raise UserError(
            f"{start.path} was written by {before} processes, and this run has {now}; launch with "
            f"--num_processes {before}, or set run=<another name>"
        )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The metric lines of a run, one dict a step; a last line torn by a kill is left out."""
    records, lines = [], path.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                line = f"{path}:{number}: not JSON ({error}); restore or remove it"
                raise UserError(line) from error
    return records


def config_hash(config: TrainConfig) -> str:
    """A short hash of the keys that a resume may not change."""
    fixed = {key: value for key, value in _flat(config).items() if not may_change(key)}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]


def provenance() -> dict[str, Any]:
    """Git commit, package versions and hardware, stored beside every result."""
    import torch

    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "git_commit": _git_commit(),
        "versions": versions,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpu_count": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _git_commit() -> str | None:
    """The commit of this source tree, with `-dirty` where tracked files differ."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    here = Path(__file__).parent
    try:
        return subprocess.check_output(
            command, cwd=here, stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _flat(config: TrainConfig) -> dict[str, Any]:
    """Dotted key -> value of a config."""
    return flat(config.model_dump())
