"""The policies of a run that can be scored, and the files of their scores.

results/<run>/<checkpoint>/<task>/repeat-<k>.jsonl   a repeat, one record (a line) a question
results/<run>.json        the summary, in the published schema
results/<run>.meta.json   the settings of each task's scores, and the digests of the scored weights

Scores of other settings or weights are never mixed: for a run they are refused, and those of a base
model go to another file, base-<model>+2.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pods.config.errors import UserError
from pods.config.keys import changes, typed_as
from pods.config.sweeps import evaluate_command
from pods.files import Held, JsonObject, lock, write_atomic
from pods.runs import checkpoints, results

Settings = dict[str, dict[str, Any]]  # of scores, by task


@dataclass(frozen=True)
class Target:
    """One policy to score; weights: None for the base model."""

    name: str = "base"
    step: int = 0
    weights: Path | None = None
    meta: dict[str, Any] = field(default_factory=dict)  # the checkpoint's, for the results
    digest: str = ""  # of the weights


class Store:
    """The scores of one run, or of a base model: its only policy, of step 0."""

    def __init__(self, results_dir: Path, name: str, base: bool = False) -> None:
        self.base = base
        self.name = name
        self.folder = results_dir / name
        self.summary = results_dir / f"{name}.json"
        self.facts_path = self.summary.with_suffix(".meta.json")
        self.facts = results.facts_of(self.facts_path)
        self.scores: results.Results = {}
        details = self.facts.pop("details", {})  # of a base model, whose file has no place for them
        if self.summary.exists() and base:
            self.scores[0] = results.read_base(self.summary)
            self.scores[0].meta = details
        elif self.summary.exists():
            self.scores = results.read(self.summary)

    def repeats(self, policy: str, task: str) -> list[Path]:
        """The existing files, repeat-10 after repeat-9."""
        files = (self.folder / policy / task).glob("repeat-*.jsonl")
        own = [path for path in files if re.fullmatch(r"repeat-\d+", path.stem)]  # no copies
        return sorted(own, key=lambda path: results.run_order(path.name))

    def difference(self, settings: Settings) -> str:
        """Why scores of these settings cannot be added, in a clause; "" if they can."""
        if "tasks" not in self.facts and (self.scores or self.facts_path.exists()):
            return (
                f"{self.summary} was not written by evaluate_run.py ({self.facts_path.name} is "
                "missing or another's); move it"
            )
        for task, asked in settings.items():
            changed = changes(self.facts.get("tasks", {}).get(task, asked), asked)
            if changed:
                if "digest" in changed:
                    changed["digest"] = "questions or prompts"
                others = ", ".join(changed.values())
                return (
                    f"{task} of {self.name} was scored with other settings: {others}; restore them"
                )
        return ""

    def note(self, task: str, settings: dict[str, Any], target: Target) -> None:
        """Keep how and of which weights a score is made; before its records are written. Scores of
        other weights leave the summary first: a kill must not leave them beside the new digest."""
        tasks, weights = self.facts.setdefault("tasks", {}), self.facts.setdefault("weights", {})
        other = weights.get(target.name, target.digest) != target.digest  # records were removed
        if other and self.scores.pop(target.step, None):
            results.write(self.summary, self.scores)
        tasks[task], weights[target.name] = settings, target.digest

    def add(self, target: Target, task: str, entry: results.Entry, details: JsonObject) -> None:
        """Put the scores of a policy into the summary. Its older scores by a column of the data
        leave: they may be of fewer repeats."""
        first = next(iter(details["rewards"].values()))  # its numbers are the published ones
        by_k = {name[5:]: first[name]["mean"] for name in first if name.startswith("pass@")}
        policy = self.scores.setdefault(target.step, results.Scores())
        for name in [name for name in policy.datasets if name.startswith(f"{task}/")]:
            del policy.datasets[name]
        policy.datasets[task] = entry
        policy.meta |= target.meta
        policy.meta.setdefault("scores", {})[task] = details
        policy.meta.setdefault("pass@k", {})[task] = by_k

    def write_facts(self) -> None:
        facts = self.facts
        if self.base and self.scores:
            facts = facts | {"details": self.scores[0].meta}
        write_atomic(self.facts_path, json.dumps(facts, indent=1) + "\n")

    def write(self) -> None:
        """The facts first, so that no summary is ever without them."""
        if self.scores:
            self.write_facts()
            results.write(self.summary, self.scores[0] if self.base else self.scores)


@contextmanager
def held(results_dir: Path, name: str, settings: Settings, base: bool = False) -> Iterator[Store]:
    """A store that no other process changes in this block, at whose end it is written.

    Of a run: UserError if another process has it, or if it holds scores of other settings. A base
    model is shared by many runs: waits for it, and takes its first file whose settings agree.
    """
    for number in count(1):
        numbered = name if number == 1 else f"{name}+{number}"
        try:
            with lock(results_dir / numbered / ".lock", wait=base):
                store = Store(results_dir, numbered, base)
                problem = store.difference(settings)
                if not problem:
                    try:
                        yield store
                    finally:
                        store.write()
                    return
        except Held as owner:  # of a run
            problem = f"{owner} scores {name}; wait for it"
        if not base:
            raise UserError(
                f"results_dir={results_dir}: {problem}, or choose another results_dir"
            ) from None


def find(
    folder: Path, names: Sequence[str | int], store: Store, task: str
) -> tuple[list[Target], list[str]]:
    """The checkpoints of a run to score, by step, and a line for each that cannot be scored."""
    finished = {checkpoint.path.name: checkpoint for checkpoint in checkpoints.find(folder)}
    targets, problems = [], []
    chosen = [*finished]
    if "all" in names or not finished:
        problems += [
            f"{path}: not finished (by its name or meta.json)"
            for path in sorted(folder.glob("checkpoint-*"))
            if path.name not in finished
        ]
    else:
        chosen = [_named(name, chosen, folder, store, task) for name in names]
    for name, checkpoint in finished.items():  # by step
        if name not in chosen:
            continue
        records, meta = store.folder / name, dict(checkpoint.meta)
        files = meta.pop("files")  # sizes and digests, which the results do not show
        meta.pop("digests", None)
        digest = "+".join(f["sha256"] for n, f in files.items() if n.endswith(".safetensors"))
        problem = checkpoints.damage(checkpoint)
        scored = any(records.glob("*/repeat-*.jsonl"))
        if not problem and scored and store.facts.get("weights", {}).get(name) != digest:
            problem = f"other weights than {records}; remove that folder"
        if problem:
            problems.append(f"{checkpoint.path}: {problem}")
        else:
            targets.append(Target(name, checkpoint.step, checkpoint.path, meta, digest))
    if not targets:
        raise UserError("; ".join(problems) or f"{folder}: has no checkpoint yet; wait for one")
    return targets, problems


def best(scores: results.Results, folder: Path, data: str) -> tuple[str, float]:
    """The checkpoint in a run's folder with the highest share correct on a data set, the earliest
    of equals, and the share; by the first grader of the newest scores. ("", 0) without one."""
    graded = {
        f"checkpoint-{step}": of_step.meta["scores"][data]["rewards"]
        for step, of_step in scores.items()
        if data in of_step.datasets and (folder / f"checkpoint-{step}").is_dir()
    }
    grader = next(iter([*graded.values()][-1])) if graded else ""
    shares = {name: by[grader]["correct"]["mean"] for name, by in graded.items() if grader in by}
    name = max(shares, key=shares.__getitem__, default="")
    return name, shares.get(name, 0.0)


def _named(name: str | int, finished: list[str], folder: Path, store: Store, task: str) -> str:
    """The folder of a checkpoint; the best by validation, here or in training, never by test."""
    path = f"checkpoint-{name}"
    if name == "last":
        path = finished[-1]
    elif name == "best":
        names = {data for scores in store.scores.values() for data in scores.datasets}
        data = min((name for name in names if name.startswith(f"{task}.validation")), default="")
        in_training = results.facts_of(folder / "meta.json").get("checkpoint_best") or {}
        path = best(store.scores, folder, data)[0] or in_training.get("checkpoint")
    if not path:
        words = [typed_as("run", store.name), "split=validation"]
        places = {"output_dir": folder.parent, "results_dir": store.summary.parent}
        raise UserError(
            f"{folder}: no checkpoint has validation scores on {task}; train with "
            f"evaluation.split=validation, or type: {evaluate_command(*words, **places)}"
        )
    if path not in finished:
        steps = ", ".join(other.removeprefix("checkpoint-") for other in finished)
        raise UserError(f"{folder}: has no {path}; it has {steps}")
    return path
