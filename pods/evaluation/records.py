"""The stored completions of an evaluation: one atomic file per (checkpoint, task, repeat).

results/<run>/<checkpoint>/<task>/repeat-<k>.jsonl   a line a question: id, answer, completion,
                                                     tokens, truncated, well_formed, correct
results/<run>.json        the summary, in the published schema
results/<run>.meta.json   what the files were made with; other settings are refused, not mixed
"""

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pods.config.errors import UserError
from pods.files import write_atomic
from pods.runs import results

Record = dict[str, Any]


class Store:
    """The files of one run, or of one base model; UserError where another program wrote them."""

    def __init__(self, results_dir: Path, name: str, base: bool = False) -> None:
        self.base = base
        self.folder = results_dir / name
        self.summary = results_dir / f"{name}.json"
        self.facts_path = results.facts_path(self.summary)
        try:
            self.facts: dict[str, Any] = json.loads(self.facts_path.read_text())
            ours = isinstance(self.facts, dict) and isinstance(self.facts.get("tasks"), dict)
        except FileNotFoundError:
            self.facts, ours = {"tasks": {}, "weights": {}}, not self.summary.exists()
        except (OSError, ValueError):
            ours = False
        if not ours:
            raise UserError(
                f"results_dir={results_dir}: {self.summary} was not written by evaluate_run.py "
                f"({self.facts_path.name} is missing or another's) and is left as it is; choose "
                "another results_dir"
            )

    def claim(self, task: str, settings: dict[str, Any], **facts: Any) -> None:
        """Note what `task` is scored with. Raises UserError if it was scored otherwise."""
        scored = any(self.folder.glob(f"*/{task}/repeat-*.jsonl"))
        before = self.facts["tasks"].get(task, settings) if scored else settings
        differ = "; ".join(
            f"{key}={json.dumps(before.get(key))}, now {json.dumps(settings.get(key))}"
            for key in sorted(before | settings)
            if before.get(key) != settings.get(key)
        )
        if differ:
            raise UserError(
                f"results_dir={self.summary.parent}: {task} of {self.folder.name} was scored with "
                f"{differ}; ask for the same, or choose another results_dir"
            )
        self.facts = {**facts, **self.facts}
        self.facts["tasks"][task] = settings

    def refuse_mixture(self, from_training: bool) -> None:
        """Raise UserError where the run's scores here are from the other source."""
        if self.facts["tasks"] and self.facts.get("from_training", False) != from_training:
            source = "its checkpoints" if from_training else "its training (from_training=true)"
            raise UserError(
                f"results_dir={self.summary.parent}: holds scores of {self.folder.name} from "
                f"{source}, and the two kinds are not mixed; choose another results_dir"
            )

    def same_weights(self, checkpoint: str, digest: str) -> bool:
        """Whether the scores of `checkpoint`, if any, are of the weights with this digest."""
        scored = any((self.folder / checkpoint).glob("*/repeat-*.jsonl"))
        return not scored or self.facts["weights"].get(checkpoint) == digest

    def path(self, checkpoint: str, task: str, repeat: int) -> Path:
        return self.folder / checkpoint / task / f"repeat-{repeat}.jsonl"

    def repeats(self, checkpoint: str, task: str) -> list[Path]:
        """The existing files, repeat-10 after repeat-9."""
        files = (self.folder / checkpoint / task).glob("repeat-*.jsonl")
        return sorted(files, key=lambda path: int(path.stem.removeprefix("repeat-")))

    def files(self, summary: Path | None = None) -> list[Path]:
        """What is written: the summary, its facts, and the folder of completions."""
        return [summary or self.summary, self.facts_path, self.folder]

    def write_facts(self) -> None:
        with named_disk_errors(self.facts_path):
            write_atomic(self.facts_path, json.dumps(self.facts, indent=1) + "\n")

    def publish(
        self, path: Path, step: int, meta: dict[str, Any],
        scores: dict[str, tuple[results.Entry, dict[str, Any]]],
    ) -> None:  # fmt: skip
        """Put the scores of one policy, by task, into the summary `path`; others stay as they are.

        The published base schema has no place for details: they stand among the facts.
        """
        run = results.read(path) if path.exists() and not self.base else {}
        if self.base and path.exists():
            run[step] = results.read_base(path)
            run[step].meta = self.facts.get("details", {})
        policy = run.setdefault(step, results.Checkpoint())
        policy.meta |= meta
        for task, (entry, details) in scores.items():
            policy.datasets = dict(sorted((policy.datasets | {task: entry}).items()))
            first = next(iter(details["rewards"].values()))  # its numbers are the published ones
            by_k = {name[5:]: first[name]["mean"] for name in first if name.startswith("pass@")}
            for key, value in (("scores", details), ("pass@k", by_k)):
                policy.meta[key] = dict(sorted({**policy.meta.get(key, {}), task: value}.items()))
        if self.base:
            self.facts["details"] = policy.meta
        self.write_facts()
        with named_disk_errors(path):
            if self.base:
                results.write_base(path, policy)
            else:
                results.write(path, run)


def read(path: Path) -> list[Record]:
    """The records of one repeat."""
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError as error:
        raise UserError(f"{path}: not JSON lines ({error}); remove it and run again") from None


def write(path: Path, records: list[Record]) -> None:
    with named_disk_errors(path):
        write_atomic(path, "".join(json.dumps(record) + "\n" for record in records))


@contextmanager
def named_disk_errors(path: Path) -> Iterator[None]:
    """A full or read-only disk is one line; everything finished before stays valid."""
    try:
        yield
    except OSError as error:
        full = error.errno == errno.ENOSPC
        remedy = "free some space" if full else "choose another results_dir"
        again = f"{remedy} and run the same command again, finished repeats are kept"
        raise UserError(f"{path}: {error.strerror}; {again}") from error
