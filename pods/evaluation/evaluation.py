"""Stage 8: checkpoint x task x repeat -> completions -> records on disk -> results/<run>.json.

Departs from the published script: nothing is merged or reloaded, a finished repeat is on disk at
once, a restart generates only the missing repeats, and every completion has a separate seed.
    uv run evaluate_run.py run=<run>
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import rewards
from pods.engines import Advance, Completion, Engine, Request, Work, seed_of, texts
from pods.evaluation import records, scores
from pods.evaluation.questions import Questions
from pods.evaluation.records import Record, Store, named_disk_errors
from pods.runs import results


@dataclass(frozen=True)
class Target:
    """One policy to score, and the file for its scores; weights: None for the base model."""

    summary: "Summary"
    name: str = "base"
    weights: Path | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    lora_rank: int | None = None

    @property
    def step(self) -> int:
        return 0 if self.weights is None else int(self.name.removeprefix("checkpoint-"))


class Summary:
    """results/<run>.json, rewritten whole after every repeat; other entries stay as they are."""

    def __init__(self, path: Path, store: Store, base: bool = False) -> None:
        self.store, self._path, self._base = store, path, base
        self._results: results.Results = {}
        if path.exists() and base:
            self._results = {0: results.read_base(path)}
            self._results[0].meta = store.facts.get("details", {})  # not in the published schema
        elif path.exists():
            self._results = results.read(path)

    def put(self, target: Target, task: str, entry: results.Entry, details: dict[str, Any]) -> None:
        checkpoint = self._results.setdefault(target.step, results.Checkpoint())
        checkpoint.datasets = dict(sorted((checkpoint.datasets | {task: entry}).items()))
        added: dict[str, Any] = {"scores": details}
        grader = next(iter(details["rewards"].values()))  # its numbers are the published ones
        for metric in ("pass@", "majority@"):
            ks = [name.removeprefix(metric) for name in grader if name.startswith(metric)]
            added[f"{metric}k"] = {k: grader[f"{metric}{k}"]["mean"] for k in ks}
        checkpoint.meta |= target.meta
        for name, value in added.items():
            by_task = checkpoint.meta.get(name, {}) | {task: value}
            checkpoint.meta[name] = dict(sorted(by_task.items()))

    @property
    def files(self) -> list[Path]:
        """What is written: the summary, its facts, and the folder of completions."""
        return [self._path, self.store.facts_path, self.store.folder]

    def details(self, target: Target, task: str) -> dict[str, Any]:
        return self._results[target.step].meta["scores"][task]

    def write(self) -> None:
        if self._base:
            self.store.facts["details"] = self._results[0].meta
        self.store.write_facts()
        with named_disk_errors(self._path):
            if self._base:
                results.write_base(self._path, self._results[0])
            else:
                results.write(self._path, self._results)


class Part(NamedTuple):
    """One repeat of one task: it is generated together and reaches the disk together."""

    target: Target
    questions: Questions
    path: Path


@dataclass
class Evaluation:
    """The questions for every policy, and their graders."""

    questions: Sequence[Questions]
    repeats: int
    seed: int
    versions: Sequence[str]
    pass_at: Sequence[int]
    tokenizer: Any
    stop: Sequence[str]

    def missing(self, targets: Sequence[Target]) -> list[Work]:
        """The work for each (target, task, repeat) that is not on disk, labelled as a Part."""
        works = []
        for target, q, repeat in product(targets, self.questions, range(self.repeats)):
            path = target.summary.store.path(target.name, q.task, repeat)
            if not path.exists():
                seeds = [seed_of(self.seed, target.name, q.task, id_, repeat) for id_ in q.ids]
                pairs = zip(q.prompt_ids, seeds, strict=True)
                requests = [Request(prompt, [seed]) for prompt, seed in pairs]
                works.append(Work(requests, target.weights, Part(target, q, path)))
        return works

    def run(
        self, engine: Callable[[], Engine], targets: Sequence[Target], works: Sequence[Work],
        advance: Advance,
    ) -> Iterator[Target]:  # fmt: skip
        """Generate `works`, which are missing; each repeat is recorded and summed up at once.

        Yields a target when its last repeat is finished; the engine is built if there is any work.
        """
        for target in targets:
            target.summary.store.write_facts()  # first, so that no file is ever without them
        left = Counter(work.label.target.name for work in works)
        for target in targets:
            for q in self.questions:
                self._sum_up(target, q)
            if not left[target.name]:
                target.summary.write()
        for work, groups in engine().generate(works, advance=advance) if works else ():
            target, q, path = work.label
            records.write(path, self._records(q, [completion for (completion,) in groups]))
            self._sum_up(target, q)
            target.summary.write()
            left[target.name] -= 1
            if not left[target.name]:
                yield target

    def _records(self, q: Questions, completions: Sequence[Completion]) -> list[Record]:
        said = texts(self.tokenizer, completions, self.stop)
        columns = zip(q.ids, q.answers, said, completions, strict=True)
        found = [
            {"id": id_, "answer": answer, "completion": text, "tokens": len(completion.token_ids),
             "truncated": completion.clipped, "well_formed": rewards.is_well_formed(text),
             "correct": {}}
            for id_, answer, text, completion in columns
        ]  # fmt: skip
        scores.grade(found, self.versions, q.kind)
        return found

    def _sum_up(self, target: Target, q: Questions) -> None:
        files = target.summary.store.repeats(target.name, q.task)
        if repeats := [scores.graded(path, self.versions, q.kind) for path in files]:
            entry = scores.entry(repeats, self.versions[0], q.prompts)
            details = scores.details(repeats, self.versions, self.pass_at, q.kind)
            target.summary.put(target, q.task, entry, details)
