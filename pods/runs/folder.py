"""A run's folder, checkpoints/<run>/, with its lock, its config and its provenance."""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import socket
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pods import files, ranks
from pods.config.command import load_config
from pods.config.errors import UserError
from pods.config.keys import TrainConfig, flat
from pods.config.sweeps import may_change
from pods.files import write_atomic
from pods.runs import checkpoints
from pods.runs.checkpoints import Checkpoint
from pods.runs.results import facts_of

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "unsloth", "vllm")


class RunFolder:
    """The folder of one run, held by a lock while a training writes to it."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.path = config, Path(config.output_dir) / config.run
        self.saved_config, self.meta = self.path / ".hydra" / "config.yaml", self.path / "meta.json"
        self.metrics, self.evaluations, self.ledger = (
            self.path / name for name in ("metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl.gz")
        )

    def __enter__(self) -> "RunFolder":
        ranks.from_main(self._take)
        return self

    def _take(self) -> None:
        path = self.path / ".lock"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(path, "a")  # noqa: SIM115  held to the end
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # freed by the kernel on a kill
        except BlockingIOError as error:
            line = f"{path.read_text() or 'another process'} is training in {self.path}"
            remedy = "wait for it, stop it, or set run=<another name>"
            raise UserError(f"run={self.config.run}: {line}; {remedy}") from error
        except OSError as error:
            line = f"output_dir={self.config.output_dir}: no lock {path} ({error.strerror})"
            raise UserError(f"{line}; choose another output_dir") from error
        self._lock.truncate(0)
        print(f"pid {os.getpid()} on {socket.gethostname()}", end="", file=self._lock, flush=True)

    def __exit__(self, *_: object) -> None:
        if ranks.is_main():
            self._lock.truncate(0)
            self._lock.close()

    def find_start(self) -> Checkpoint | None:
        """The checkpoint to continue, None for a new run; UserError if it cannot be continued."""
        resume, existing = self.config.resume, len([*self.path.glob("checkpoint-*")])
        if resume == "never" and existing:
            remedy = "set run=<another name>, or resume=auto to continue"
            raise UserError(f"resume=never: {self.path} holds {existing} checkpoints; {remedy}")
        path = self.path / "checkpoint-*" if resume in ("auto", "never") else Path(resume)
        if path.parent.resolve() != self.path.resolve():
            remedy = f"set run={path.parent.name}"
            raise UserError(f"resume={resume}: of another run than run={self.config.run}; {remedy}")
        start, problems = checkpoints.newest_intact(self.path, path.name)
        if problems and start is None:
            raise UserError(f"resume={resume}: {'; '.join(problems)}; set run=<another name>")
        for problem in problems:
            ranks.say(f"{problem}; skipped, left as it is")
        if start is not None:
            self.refuse_changes()
            before, now = start.meta.get("ranks", 1), ranks.world_size()
            if before != now:  # each has its part of the state
                remedy = f"launch with --num_processes {before}, or set run=<another name>"
                line = f"{start.path} was written by {before} processes, and this run has {now}"
                raise UserError(f"{line}; {remedy}")
            ranks.say(f"resuming {start.path}")
        return start

    def refuse_changes(self) -> None:
        """Raise UserError naming the keys in which the saved config of the run differs."""
        run = self.config.run
        if not self.saved_config.is_file():
            raise UserError(f"run={run}: {self.saved_config} is missing; set run=<another name>")
        configs = load_config(self.saved_config), self.config
        before, now = (flat(config.model_dump()) for config in configs)
        if (former := before["run"]) != run:
            remedy = f"rename it to {former}, or set run={run} in that file"
            raise UserError(
                f"run={run}: {self.saved_config} has run={former}: the folder was renamed; {remedy}"
            )
        changes = {
            key: f"{key} ({before.get(key)} -> {now.get(key)})"
            for key in sorted(before | now)
            if before.get(key) != now.get(key)
        }
        if refused := [key for key in changes if not may_change(key)]:
            line = ", ".join(changes[key] for key in refused)
            remedy = "restore these keys, or set run=<another name>"
            raise UserError(f"run={run} was started with another config: {line}; {remedy}")
        for key in changes:
            if key.startswith("engine.") and before[key] != "auto":
                ranks.say(f"run={run} resumes with another engine: {changes[key]}")

    def begin(self, start: Checkpoint | None) -> None:
        """Write config and provenance of a new run; drop what a resumed one wrote after `start`."""
        step = start.step if start else 0
        if start is None:
            write_atomic(self.saved_config, OmegaConf.to_yaml(self.config.model_dump()))
            self.note(config_hash=config_hash(self.config), **provenance())
        for path in (self.metrics, self.evaluations, self.ledger):
            files.forget_after(path, step)
        for checkpoint in checkpoints.find(self.path):
            if checkpoint.step > step:
                checkpoints.set_aside(checkpoint.path)

    def note(self, **facts: Any) -> None:
        """Add facts to the run's meta.json."""
        write_atomic(self.meta, json.dumps(facts_of(self.meta) | facts, indent=2) + "\n")


def trains(path: Path) -> bool:
    """Whether a training holds the lock of this folder."""
    try:
        with open(path / ".lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # there is no lock, or it is held
        return isinstance(error, BlockingIOError)
    return False


def config_hash(config: TrainConfig) -> str:
    """A short hash of the keys that a resume may not change."""
    fixed = {k: v for k, v in flat(config.model_dump()).items() if not may_change(k)}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]


def provenance() -> dict[str, Any]:
    """Git commit, package versions and hardware, stored beside every result."""
    import torch

    versions, commit = {}, None
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    here, quiet = Path(__file__).parent, subprocess.DEVNULL
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        commit = subprocess.check_output(command, cwd=here, stderr=quiet, text=True).strip()
    return {
        "git_commit": commit,
        "versions": versions,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpu_count": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
