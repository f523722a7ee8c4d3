"""The policies of a run that can be scored, and the files of their scores.

results/<run>/<checkpoint>/<task>/repeat-<k>.jsonl   a repeat, one record (a line) a question
results/<run>.json        the summary, in the published schema
results/<run>.meta.json   what the files were made with; other settings are refused, not mixed
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pods.config.errors import UserError
from pods.config.keys import changes
from pods.files import write_atomic
from pods.runs import checkpoints, results

ByTask = dict[str, tuple[results.Entry, dict[str, Any]]]  # published form, our details


class StoredFacts(BaseModel):
    """The form of results/<run>.meta.json; further facts are in it."""

    tasks: dict[str, dict]  # the settings of their scores
    weights: dict  # their digests, by checkpoint
    best: dict = {}  # checkpoint, by task


class Store:
    """The files of one run, or of one base model; UserError if another program wrote them."""

    def __init__(self, results_dir: Path, name: str) -> None:
        self.folder = results_dir / name
        self.summary = results_dir / f"{name}.json"
        self.facts_path = self.summary.with_suffix(".meta.json")
        self.facts: dict[str, Any] = {"tasks": {}, "weights": {}}
        if self.summary.exists() or self.facts_path.exists():
            self.facts = results.facts_of(self.facts_path)
            self.facts.pop("details", None)  # of a base model: those in the file are the newest
        try:
            StoredFacts.model_validate(self.facts)
        except ValidationError:
            raise UserError(
                f"results_dir={results_dir}: {self.summary} was not written by evaluate_run.py "
                f"({self.facts_path.name} is missing or another's); choose another results_dir"
            ) from None

    def claim(self, claims: dict[str, dict[str, Any]], facts: dict[str, Any]) -> None:
        """Note settings and facts: the training's as it is now, the provenance of the first scores.
        UserError: a task was scored otherwise."""
        self.facts = {**facts, **self.facts, "train": facts["train"]}
        for task, settings in claims.items():
            model = next(iter(self.facts["tasks"].values()), settings).get("model")
            before = {**settings, "model": model}  # one for all tasks
            if any(self.folder.glob(f"*/{task}/repeat-*.jsonl")):
                before = self.facts["tasks"].get(task, before)
            changed = changes(before, settings)
            digest = changed.pop("digest", None)  # also differs where another key changes prompts
            if digest and not changed:
                name = task.partition(".")[0]
                source = facts["train"]["task"]["source"] if name == "own" else name
                raise UserError(
                    f"results_dir={self.summary.parent}: the questions of {source}, or their "
                    f"prompts, have changed since {self.folder.name} was scored; restore them, or "
                    "choose another results_dir"
                )
            if changed:
                raise UserError(
                    f"results_dir={self.summary.parent}: {task} of {self.folder.name} was scored "
                    f"with another {', '.join(changed.values())}; "
                    "ask for the same, or choose another results_dir"
                )
            self.facts["tasks"][task] = settings

    def write_facts(self) -> None:
        """With those that another command has written meanwhile."""
        for key, value in results.facts_of(self.facts_path).items():
            if isinstance(value, dict):
                self.facts[key] = value | self.facts.get(key, {})
        write_atomic(self.facts_path, json.dumps(self.facts, indent=1) + "\n")


@dataclass(frozen=True)
class Target:
    """One policy to score, and the files of its scores; weights: None for the base model."""

    store: Store
    name: str = "base"
    step: int = 0
    weights: Path | None = None
    meta: dict[str, Any] = field(default_factory=dict)  # the checkpoint's, for the results
    digest: str = ""  # of the weights

    def repeats(self, task: str) -> list[Path]:
        """The existing files, repeat-10 after repeat-9."""
        files = (self.store.folder / self.name / task).glob("repeat-*.jsonl")
        own = [path for path in files if re.fullmatch(r"repeat-\d+", path.stem)]  # no copies
        return sorted(own, key=lambda path: results.run_order(path.name))

    def note_weights(self) -> None:
        """Note which weights are scored; scores of other weights under this name leave the
        summary."""
        store, facts = self.store, self.store.facts
        if facts["weights"].get(self.name, self.digest) != self.digest:
            if store.summary.exists():
                run = results.read(store.summary)
                run.pop(self.step, None)
                results.write(store.summary, run)
            best = facts.get("best", {})
            facts["best"] = {key: None if best[key] == self.name else best[key] for key in best}
        facts["weights"][self.name] = self.digest

    def publish(self, scores: ByTask) -> None:
        """Put the scores into the summary; details of a base model stand among the facts."""
        store, path = self.store, self.store.summary
        if self.weights is None:
            run = policy = results.read_base(path) if path.exists() else results.Scores()
            policy.meta = results.facts_of(store.facts_path).get("details", {})
            store.facts["details"] = policy.meta
        else:
            run = results.read(path) if path.exists() else {}
            policy = run.setdefault(self.step, results.Scores())
            policy.meta |= self.meta
        for task, (entry, details) in scores.items():
            first = next(iter(details["rewards"].values()))  # its numbers are the published ones
            by_k = {name[5:]: first[name]["mean"] for name in first if name.startswith("pass@")}
            policy.datasets[task] = entry
            policy.meta.setdefault("scores", {})[task] = details
            policy.meta.setdefault("pass@k", {})[task] = by_k
        store.write_facts()
        results.write(path, run)


def find(folder: Path, names: list[str], store: Store, task: str) -> tuple[list[Target], list[str]]:
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
        if not problem and scored and store.facts["weights"].get(name) != digest:
            problem = f"other weights than {records}; remove that folder"
        if problem:
            problems.append(f"{checkpoint.path}: {problem}")
        else:
            targets.append(Target(store, name, checkpoint.step, checkpoint.path, meta, digest))
    if not targets:
        raise UserError("; ".join(problems) or f"{folder}: has no checkpoint yet; wait for one")
    return targets, problems


def _named(name: str, finished: list[str], folder: Path, store: Store, task: str) -> str:
    """The folder of a checkpoint; the best by validation, here or in training, never by test."""
    path: str | None = f"checkpoint-{name}"
    if name == "last":
        path = finished[-1]
    elif name == "best":
        in_training = results.facts_of(folder / "meta.json").get("checkpoint_best") or {}
        path = store.facts.get("best", {}).get(task) or in_training.get("checkpoint")
    if path is None:
        raise UserError(
            f"{folder}: no checkpoint has validation scores on {task}; run evaluate_run.py "
            "split=validation, or train with evaluation.split=validation"
        )
    if path not in finished:
        steps = ", ".join(other.removeprefix("checkpoint-") for other in finished)
        raise UserError(f"{folder}: has no {path}; it has {steps}")
    return path
