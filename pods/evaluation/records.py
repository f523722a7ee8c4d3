"""What an evaluation keeps of its work: a file per (checkpoint, task, repeat), whole or absent.

results/<run>/<checkpoint>/<task>/repeat-<k>.jsonl   a line a question: id, answer, completion,
                                                     tokens, truncated, well_formed, correct
results/<run>.json        the summary, in the published schema
results/<run>.meta.json   what the files were made with; other settings are refused, not mixed
"""

import errno
import json
from pathlib import Path
from typing import Any

from pods import results
from pods.cli import UserError
from pods.files import write_atomic

Record = dict[str, Any]


class Store:
    """The files of one run (or of a base model) below results_dir."""

    def __init__(self, results_dir: Path, name: str) -> None:
        self.folder = results_dir / name
        self.summary = results_dir / f"{name}.json"
        self.facts_path = results.facts_path(self.summary)
        self.facts: dict[str, Any] = self._read_facts()

    def _read_facts(self) -> dict[str, Any]:
        """What an earlier evaluation noted; a summary without such notes is another's file."""
        try:
            facts = json.loads(self.facts_path.read_text())
            ours = isinstance(facts, dict) and isinstance(facts.get("tasks"), dict)
        except FileNotFoundError:
            facts, ours = {"tasks": {}, "weights": {}}, not self.summary.exists()
        except (OSError, ValueError):
            ours = False
        if not ours:
            raise UserError(
                f"results_dir={self.summary.parent}: {self.summary} was not written by "
                f"evaluate_run.py ({self.facts_path.name} is missing or another's) and is left as "
                "it is; choose another results_dir"
            )
        return facts

    def claim(self, task: str, settings: dict[str, Any], **facts: Any) -> None:
        """Note what `task` is scored with. Raises UserError if it was scored otherwise."""
        scored = any(self.folder.glob(f"*/{task}/repeat-*.jsonl"))
        before = _upgraded(self.facts["tasks"].get(task, settings)) if scored else settings
        differ = [
            f"{key}={json.dumps(before.get(key))}, now {json.dumps(settings.get(key))}"
            for key in sorted(before.keys() | settings.keys())
            if before.get(key) != settings.get(key)
        ]
        if differ:
            raise UserError(
                f"results_dir={self.summary.parent}: {task} of {self.folder.name} was scored with "
                f"{'; '.join(differ)}; ask for the same, or choose another results_dir"
            )
        self.facts = {**facts, **self.facts}
        self.facts["tasks"][task] = settings

    def knows(self, checkpoint: str, weights: str) -> bool:
        """Whether what is scored of `checkpoint`, if anything, has these weights (a digest)."""
        if not any((self.folder / checkpoint).glob("*/repeat-*.jsonl")):
            self.facts["weights"][checkpoint] = weights
        return self.facts["weights"].get(checkpoint) == weights

    def path(self, checkpoint: str, task: str, repeat: int) -> Path:
        return self.folder / checkpoint / task / f"repeat-{repeat}.jsonl"

    def repeats(self, checkpoint: str, task: str) -> list[int]:
        """The repeats that are on disk."""
        files = (self.folder / checkpoint / task).glob("repeat-*.jsonl")
        return sorted(int(file.stem.removeprefix("repeat-")) for file in files)

    def read(self, checkpoint: str, task: str, repeat: int) -> list[Record]:
        path = self.path(checkpoint, task, repeat)
        try:
            return [json.loads(line) for line in path.read_text().splitlines()]
        except ValueError as error:
            raise UserError(f"{path}: not JSON lines ({error}); remove it and run again") from None

    def write(self, checkpoint: str, task: str, repeat: int, records: list[Record]) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        self._write(self.path(checkpoint, task, repeat), lines)

    def write_facts(self) -> None:
        self._write(self.facts_path, json.dumps(self.facts, indent=1) + "\n")

    def _write(self, path: Path, content: str) -> None:
        with named_disk_errors(path):
            write_atomic(path, content)


def _upgraded(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as noted today; those of the first design name the engine `backend`."""
    engine = {"engine": settings["backend"]} if "backend" in settings else {}
    return {"stop": []} | {k: v for k, v in settings.items() if k != "backend"} | engine


class named_disk_errors:
    """A full or read-only disk is one line; what was finished before stays valid."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError):
            remedy = (
                "free some space" if error.errno == errno.ENOSPC else "choose another results_dir"
            )
            raise UserError(
                f"{self._path}: {error.strerror}; {remedy} and run the same command again, "
                "finished repeats are kept"
            ) from error
