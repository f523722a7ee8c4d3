"""Stage 8: checkpoint x task x repeat -> completions -> records on disk -> results/<run>.json.

Departs from the published script: nothing is merged or reloaded, a finished repeat is on disk at
once, a restart generates only what is missing, and every completion has a seed of its own.
    uv run evaluate_run.py run=<run>
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rewards
from pods import results
from pods.evaluation import scores
from pods.evaluation.engines import Advance, Completion, Engine, Unit
from pods.evaluation.questions import Questions
from pods.evaluation.records import Record, Store, named_disk_errors

BASE = "base"


@dataclass(frozen=True)
class Target:
    """One policy to score: a checkpoint, or the base model (weights None)."""

    store: Store
    name: str
    weights: Path | None = None
    meta: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def step(self) -> int:
        return 0 if self.weights is None else int(self.name.removeprefix("checkpoint-"))


class Summary:
    """results/<run>.json, rewritten whole after every repeat; other entries stay as they are."""

    def __init__(self, path: Path, store: Store, base: bool = False) -> None:
        self._path, self._store, self._base = path, store, base
        self._results: results.Results = {}
        if path.exists():
            self._results = {0: results.read_base(path)} if base else results.read(path)
            # The details of a base model, for which the published schema has no place.
            if base:
                self._results[0].meta = store.facts.get("details", {})

    def put(self, target: Target, task: str, entry: results.Entry, details: dict[str, Any]) -> None:
        checkpoint = self._results.setdefault(target.step, results.Checkpoint())
        checkpoint.datasets[task] = entry
        checkpoint.datasets = dict(sorted(checkpoint.datasets.items()))
        meta = checkpoint.meta
        everything = meta.get("scores", {}) | {task: details}
        meta.update(target.meta, scores=dict(sorted(everything.items())))
        grader = next(iter(details["rewards"].values()))  # the one of the published numbers
        for metric in ("pass@", "majority@"):
            values = {
                name.removeprefix(metric): value["mean"]
                for name, value in grader.items()
                if name.startswith(metric)
            }
            meta[f"{metric}k"] = dict(sorted((meta.get(f"{metric}k", {}) | {task: values}).items()))

    def details(self, target: Target, task: str) -> dict[str, Any]:
        return self._results[target.step].meta["scores"][task]

    def write(self) -> None:
        if self._base:
            self._store.facts["details"] = self._results[0].meta
        self._store.write_facts()
        with named_disk_errors(self._path):
            if self._base:
                results.write_base(self._path, self._results[0])
            else:
                results.write(self._path, self._results)


@dataclass
class Evaluation:
    """What every policy is scored on, and by which graders."""

    questions: Sequence[Questions]
    repeats: int
    seed: int
    versions: Sequence[str]
    pass_at: Sequence[int]

    def missing(self, target: Target) -> list[Unit]:
        """The units of a target that are not on disk."""
        return [
            Unit(target.name, target.weights, q.task, repeat, q.prompt_ids, seeds)
            for q in self.questions
            for repeat in range(self.repeats)
            if not target.store.path(target.name, q.task, repeat).exists()
            for seeds in [[sampling_seed(self.seed, target.name, q.task, i, repeat) for i in q.ids]]
        ]

    def run(
        self,
        engine: Callable[[], Engine],
        targets: Sequence[tuple[Target, Summary]],
        advance: Advance,
    ) -> Iterator[Target]:
        """Generate what is missing; each repeat is recorded and summed up at once.

        Yields targets as they are complete; the engine is built only if anything is missing.
        """
        missing = {target.name: self.missing(target) for target, _ in targets}
        units = [unit for todo in missing.values() for unit in todo]
        for target, _ in targets:
            target.store.write_facts()  # first, so that no file is ever without them
        finished = engine().generate(units, advance) if units else iter(())
        for target, summary in targets:
            for q in self.questions:
                self._sum_up(target, summary, q)
            for _ in missing[target.name]:
                unit, completions = next(finished)
                q = next(q for q in self.questions if q.task == unit.task)
                records = self._records(q, completions)
                target.store.write(target.name, unit.task, unit.repeat, records)
                self._sum_up(target, summary, q)
                summary.write()
            summary.write()
            yield target

    def _records(self, q: Questions, completions: Sequence[Completion]) -> list[Record]:
        records = [
            {
                "id": id_,
                "answer": answer,
                "completion": done.text,
                "tokens": done.tokens,
                "truncated": done.truncated,
                "well_formed": rewards.is_well_formed(done.text),
                "correct": {},
            }
            for id_, answer, done in zip(q.ids, q.answers, completions, strict=True)
        ]
        scores.grade(records, self.versions, q.kind)
        return records

    def _sum_up(self, target: Target, summary: Summary, q: Questions) -> None:
        repeats = scores.graded(target.store, target.name, q.task, self.versions, q.kind)
        if repeats:
            entry = scores.entry(repeats, self.versions[0], q.prompts)
            details = scores.details(repeats, self.versions, self.pass_at, q.kind)
            summary.put(target, q.task, entry, details)


def sampling_seed(seed: int, checkpoint: str, task: str, question: str, repeat: int) -> int:
    """The seed of one completion: a function of what it answers, not of when it is generated."""
    name = "\0".join([str(seed), checkpoint, task, question, str(repeat)])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1  # 63 bits
