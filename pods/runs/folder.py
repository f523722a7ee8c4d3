"""A run's folder, checkpoints/<run>/, with its lock, its config and its provenance."""

import contextlib
import hashlib
import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterable
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from pods import files, ranks
from pods.batch import Row
from pods.config.command import load_config
from pods.config.errors import RunFailed, UserError
from pods.config.functions import code_of, file_of
from pods.config.keys import TrainConfig, changes, flat, may_change
from pods.files import write_atomic
from pods.runs import checkpoints
from pods.runs.checkpoints import Checkpoint
from pods.runs.results import facts_of

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "unsloth", "vllm")
PLACES = {"output_dir", "data_dir", "resume"}  # paths on this machine


class RunFolder:
    """The folder of one run, held by a lock while a training writes to it."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.path = Path(config.output_dir) / config.run
        self.saved_config = self.path / ".hydra" / "config.yaml"
        self.meta = self.path / "meta.json"
        self.metrics = self.path / "metrics.jsonl"
        self.evaluations = self.path / "evaluations.jsonl"
        self.rollout_log = self.path / "rollouts.jsonl.gz"
        self._locks = contextlib.ExitStack()
        self.digests: dict[str, str] = {}  # of what the run points to, for its next checkpoints

    def __enter__(self) -> "RunFolder":
        ranks.from_main(self._take)
        return self

    def _take(self) -> None:
        try:
            self._lock = self._locks.enter_context(files.lock(self.path / ".lock"))
        except files.Held as owner:
            raise UserError(
                f"run={self.config.run}: {owner} is training in {self.path}; "
                "wait for it, stop it, or set run=<another name>"
            ) from None
        except OSError as error:
            raise UserError(
                f"output_dir={self.config.output_dir}: no lock {self.path / '.lock'} "
                f"({error.strerror}); choose another output_dir"
            ) from error

    def keep_lock(self) -> None:
        """Take the lock again if its file was removed. RunFailed if another training has the folder
        since then: this one must not write to it."""
        path = self.path / ".lock"
        try:
            if not path.exists() or not os.path.samestat(
                os.fstat(self._lock.fileno()), path.stat()
            ):
                self._take()
        except UserError as error:
            raise RunFailed(f"{path} was removed, and then: {error}") from error

    def __exit__(self, *_: object) -> None:
        self._locks.close()

    @cached_property
    def origin(self) -> dict[str, Any]:
        """The origin of this process's checkpoints: a hash of the config, and the provenance."""
        return {"config_hash": config_hash(self.config), **provenance()}

    def find_start(self) -> Checkpoint | None:
        """The checkpoint to continue, None for a new run; UserError if it cannot be continued."""
        resume = self.config.resume
        pattern = "checkpoint-*"
        if resume == "never":
            if any(self.path.glob(pattern)):
                raise UserError(
                    f"resume=never: {self.path} holds checkpoints; "
                    "set run=<another name>, or resume=auto to continue"
                )
        elif resume != "auto":
            path = Path(resume)
            pattern = path.name
            if path.parent.resolve() != self.path.resolve():
                raise UserError(
                    f"resume={resume}: is not in {self.path}, the folder of this run; "
                    "set output_dir and run to those of the checkpoint"
                )
        start, problems = checkpoints.newest_intact(self.path, pattern)
        if problems and start is None:
            raise UserError(f"resume={resume}: {'; '.join(problems)}; set run=<another name>")
        for problem in problems:
            ranks.say(f"{problem}; skipped")
        if start is not None:
            before, now = start.meta.get("ranks", 1), ranks.world_size()
            if before != now and (start.path / "latest").is_file():
                raise UserError(
                    f"{start.path}: each of the {before} processes that wrote it has its part of "
                    f"DeepSpeed's optimiser state, and this run has {now}; launch with "
                    f"--num_processes {before}, or set run=<another name>"
                )
            self.refuse_changes(before != now)
            self.refuse_shorter(start)
            ranks.say(f"resuming {start.path}")
            if before != now:
                ranks.say(
                    f"{before} -> {now} processes: the same prompts in the same order; weights "
                    "agree up to rounding"
                )
            versions = facts_of(self.meta).get("versions") or {}
            before, now = versions.get("vllm"), installed("vllm").get("vllm")
            if before and now and before != now:  # vLLM 0.32 draws other numbers
                ranks.say(f"vllm {before} -> {now}: completions of the same seeds may differ")
        return start

    def refuse_unshared(self, start: Checkpoint | None) -> None:
        """Raise UserError if a rank has other keys than rank 0, or does not see the file that rank
        0 sees: that of `start`, or the lock. Folders that are compared by what is in them may have
        another path on each machine."""
        configs = ranks.gather([self.config.model_dump(exclude=PLACES)])
        for number, config in enumerate(configs):
            different = changes(configs[0], config)
            if different:
                raise UserError(
                    f"{ranks.name(number)} has other keys than rank 0: "
                    f"{', '.join(different.values())}; type the same command on all machines"
                )
        path = start.path / "meta.json" if start else self.path / ".lock"
        text = None
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # NFS asks the server anew
            text = path.read_text()
        ranks.refuse_difference(
            text, f"does not see {path} of rank 0; set output_dir to a folder that both share"
        )

    def compare(self, start: Checkpoint | None, digests: dict[str, str]) -> None:
        """Note digests of what the run points to. UserError if one differs from that in `start`,
        unless resume_changed is set."""
        for key, digest in digests.items():
            ranks.refuse_difference(digest, f"does not have rank 0's {key}; copy its file there")
        self.digests |= digests
        before = start.meta.get("digests", {}) if start else {}  # an older checkpoint has none
        changed = [name for name in digests if before.get(name, digests[name]) != digests[name]]
        if changed and not self.config.resume_changed:
            raise UserError(
                f"run={self.config.run}: changed since {start.path.name}: {', '.join(changed)}; "
                "restore it, set resume_changed=true to go on anyway, or set run=<another name>"
            )
        for name in changed:
            ranks.say(f"changed since {start.path.name}: {name}")

    def refuse_shorter(self, start: Checkpoint) -> None:
        """Raise UserError if this run would have ended before `start`: a finished run of a larger
        budget never stands in for it."""
        run, limit, budget = self.config.run, self.config.max_steps, self.config.budget
        if limit and start.step > limit:
            raise UserError(
                f"run={run}: {start.path} has more steps than max_steps={limit}; "
                f"set run=<another name>, or max_steps={start.step}"
            )
        seconds = start.meta.get("seconds_before_step", 0.0)  # when it decided to go on
        if budget.train_seconds and seconds >= budget.train_seconds:
            raise UserError(
                f"run={run}: {start.path} has more seconds of training than "
                f"budget.train_seconds={budget.train_seconds:g}; "
                f"set run=<another name>, or a budget above {seconds:.1f}"
            )

    def refuse_changes(self, other_ranks: bool) -> None:
        """Raise UserError naming the keys in which the saved config of the run differs; a
        micro-batch may have another size on another number of ranks."""
        run = self.config.run
        if not self.saved_config.is_file():
            raise UserError(f"run={run}: {self.saved_config} is missing; set run=<another name>")
        saved = load_config(self.saved_config)
        refused = []
        changed = changes(saved.model_dump(), self.config.model_dump())
        for key, change in changed.items():
            if not may_change(key) and not (other_ranks and key == "micro_batch_size"):
                refused.append(change)
        if refused:
            raise UserError(
                f"run={run} was started with another config: {', '.join(refused)}; "
                "restore these keys, or set run=<another name>"
            )

    def begin(self, start: Checkpoint | None) -> None:
        """Write the config, and the provenance of a new run; drop what a resumed one wrote after
        `start`."""
        step = start.step if start else 0
        files.remove_old(self.path, ".*.tmp", seconds=0)  # of a killed process: the lock is ours
        write_atomic(self.saved_config, OmegaConf.to_yaml(self.config.model_dump()))
        if HydraConfig.initialized():  # as Hydra writes it: what was typed
            typed = OmegaConf.to_yaml(HydraConfig.get().overrides.task)
            write_atomic(self.saved_config.with_name("overrides.yaml"), typed)
        origin = self.origin  # of now: the clone may be at another commit by the first checkpoint
        if start is None or not facts_of(self.meta):
            saved = start.meta if start else {}
            self.note(**{key: saved.get(key, value) for key, value in origin.items()})
        for lines in (self.metrics, self.rollout_log) if step else ():
            if not lines.is_file():
                ranks.say(f"{lines}: is missing; the new file starts after step {step}")
        for lines in (self.metrics, self.rollout_log, self.evaluations):
            files.forget_after(lines, step)
        for checkpoint in checkpoints.find(self.path):
            if checkpoint.step > step:
                checkpoints.set_aside(checkpoint.path)

    def note(self, **facts: Any) -> None:
        """Add facts to the run's meta.json."""
        write_atomic(self.meta, json.dumps(facts_of(self.meta) | facts, indent=2) + "\n")


def config_hash(config: TrainConfig) -> str:
    """A short hash of the keys that a resume may not change."""
    keys = flat(config.model_dump()).items()
    fixed = {key: value for key, value in keys if not may_change(key)}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]


def digest_of_questions(rows: Iterable[Row]) -> str:
    """A digest of questions, ids and gold answers."""
    content = [[row["id"], row["question"], row["answer"]] for row in rows]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def digests_of_files(config: TrainConfig) -> dict[str, str]:
    """key=file -> the digest of each Python file that a config names."""
    return {
        f"{key}={function}": checkpoints.digest(Path(file_of(function)))
        for key, function in code_of(config, step=True).items()
    }


def installed(*packages: str) -> dict[str, str]:
    """The versions of these packages, without those that are not installed."""
    versions = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def provenance() -> dict[str, Any]:
    """Git commit, package versions and hardware, stored beside every result."""
    import torch

    commit = None  # outside of a clone
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        commit = subprocess.check_output(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).parent,
            stderr=subprocess.DEVNULL,
            text=True,
        ).strip()
    return {
        "git_commit": commit,
        "versions": installed(*PACKAGES),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpu_count": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
