"""Stage 8: checkpoint x task x repeat -> completions -> records on disk -> results/<run>.json.

Departs from the published script: nothing is merged or reloaded, a finished repeat is on disk at
once, a restart generates only what is missing, and every completion has a seed of its own.
    uv run evaluate_run.py run=<run>
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import rewards
from pods import results
from pods.engines import Advance, Completion, Engine, Request, Work, seed_of, texts
from pods.evaluation import scores
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


Round = tuple[Target, Summary]  # a policy to score, and the file its scores go to


class Part(NamedTuple):
    """One repeat of one task: what is generated together and reaches the disk together."""

    target: Target
    summary: Summary
    questions: Questions
    repeat: int


@dataclass
class Evaluation:
    """What every policy is scored on, and by which graders."""

    questions: Sequence[Questions]
    repeats: int
    seed: int
    versions: Sequence[str]
    pass_at: Sequence[int]
    tokenizer: Any
    stop: Sequence[str]

    def missing(self, rounds: Sequence[Round]) -> list[Work]:
        """What is not on disk: a work for each (target, task, repeat), labelled as a Part."""
        return [
            self._work(Part(target, summary, q, repeat))
            for target, summary in rounds
            for q in self.questions
            for repeat in range(self.repeats)
            if not target.store.path(target.name, q.task, repeat).exists()
        ]

    def _work(self, part: Part) -> Work:
        name, q = part.target.name, part.questions
        seeds = [sampling_seed(self.seed, name, q.task, i, part.repeat) for i in q.ids]
        requests = [
            Request(prompt, [seed]) for prompt, seed in zip(q.prompt_ids, seeds, strict=True)
        ]
        return Work(requests, part.target.weights, label=part)

    def run(
        self,
        engine: Callable[[], Engine],
        rounds: Sequence[Round],
        works: Sequence[Work],
        advance: Advance,
    ) -> Iterator[Target]:
        """Generate `works` (what is missing); each repeat is recorded and summed up at once.

        Yields a target when its last repeat is finished; the engine is built if there is any work.
        """
        for target, _ in rounds:
            target.store.write_facts()  # first, so that no file is ever without them
        left = Counter(work.label.target.name for work in works)
        for target, summary in rounds:
            for q in self.questions:
                self._sum_up(target, summary, q)
            if not left[target.name]:
                summary.write()
        for work, groups in engine().generate(works, advance=advance) if works else ():
            target, summary, q, repeat = work.label
            records = self._records(q, [completion for (completion,) in groups])
            target.store.write(target.name, q.task, repeat, records)
            self._sum_up(target, summary, q)
            summary.write()
            left[target.name] -= 1
            if not left[target.name]:
                yield target

    def _records(self, q: Questions, completions: Sequence[Completion]) -> list[Record]:
        said = texts(self.tokenizer, completions, self.stop)
        records = [
            {
                "id": id_,
                "answer": answer,
                "completion": text,
                "tokens": len(completion.token_ids),
                "truncated": completion.clipped,
                "well_formed": rewards.is_well_formed(text),
                "correct": {},
            }
            for id_, answer, text, completion in zip(
                q.ids, q.answers, said, completions, strict=True
            )
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
    """The seed of one completion: a function of its question, not of when it is generated."""
    return seed_of(seed, checkpoint, task, question, repeat)
