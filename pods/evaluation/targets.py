"""The policies of a run that can be scored, and the files of their scores.

results/<run>/<checkpoint>/<task>/repeat-<k>.jsonl   a repeat, one record (a line) a question
results/<run>.json        the summary, in the published schema
results/<run>.meta.json   what the files were made with; other settings are refused, not mixed
"""

import errno
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from pods.config.errors import UserError
from pods.files import write_atomic
from pods.models import is_adapter, same_model
from pods.runs import checkpoints, results

Scores = dict[str, tuple[results.Entry, dict[str, Any]]]  # task -> published form, our details


class Record(TypedDict):
    """One completion with its grades."""

    id: str  # of the question
    answer: str
    completion: str
    tokens: int
    clipped: bool
    well_formed: bool
    correct: dict[str, bool]  # by grader


class Store:
    """The files of one run, or of one base model; UserError where another program wrote them."""

    def __init__(self, results_dir: str, name: str, base: bool = False) -> None:
        self.base, self.folder = base, Path(results_dir) / name
        self.summary = Path(results_dir) / f"{name}.json"
        self.facts_path = results.facts_path(self.summary)
        new = not (self.summary.exists() or self.facts_path.exists())
        self.facts = {"tasks": {}, "weights": {}} if new else results.facts_of(self.facts_path)
        if not isinstance(self.facts.get("tasks"), dict):
            raise UserError(
                f"results_dir={results_dir}: {self.summary} was not written by evaluate_run.py "
                f"({self.facts_path.name} is missing or another's); choose another results_dir"
            )

    def claim(self, claims: dict[str, dict[str, Any]], facts: dict[str, Any]) -> None:
        """Note what each task is scored with, and the first `facts`. Raises UserError if a task was
        scored otherwise, or scores taken in training would be mixed with others."""
        place, of_training = f"results_dir={self.summary.parent}", "from_training" in self.facts
        if self.facts["tasks"] and of_training != ("from_training" in facts):
            source = "its training (from_training=true)" if of_training else "its checkpoints"
            holds = f"holds scores of {self.folder.name} from {source}"
            raise UserError(f"{place}: {holds}, which are not mixed; choose another results_dir")
        self.facts = {**facts, **self.facts}
        for task, settings in claims.items():
            scored = any(self.folder.glob(f"*/{task}/repeat-*.jsonl"))
            before = self.facts["tasks"].get(task, settings) if scored else settings
            changes = "; ".join(
                f"{key}={json.dumps(before.get(key))}, now {json.dumps(settings.get(key))}"
                for key in sorted(before | settings)
                if before.get(key) != settings.get(key)
            )
            if changes:
                remedy = "ask for the same, or choose another results_dir"
                scored_with = f"{task} of {self.folder.name} was scored with {changes}"
                raise UserError(f"{place}: {scored_with}; {remedy}")
            self.facts["tasks"][task] = settings

    def repeats(self, policy: str, task: str) -> list[Path]:
        """The existing files, repeat-10 after repeat-9."""
        files = (self.folder / policy / task).glob("repeat-*.jsonl")
        return sorted(files, key=lambda path: int(path.stem.removeprefix("repeat-")))

    def write_facts(self) -> None:
        save(write_atomic, self.facts_path, json.dumps(self.facts, indent=1) + "\n")


@dataclass(frozen=True)
class Target:
    """One policy to score, and the files of its scores; weights: None for the base model."""

    store: Store
    name: str = "base"
    step: int = 0
    weights: Path | None = None
    meta: dict[str, Any] = field(default_factory=dict)  # the checkpoint's, for the results
    digest: str = ""  # of the weights
    lora_rank: int | None = None

    def publish(self, scores: Scores, path: Path | None = None) -> None:
        """Put the scores, by task, into the summary (or `path`); those of others stay as they are.

        The published base schema has no place for details: they stand among the facts.
        """
        store, path = self.store, path or self.store.summary
        if store.base:
            run = policy = results.read_base(path) if path.exists() else results.Checkpoint()
            policy.meta = store.facts.setdefault("details", {})
        else:
            run = results.read(path) if path.exists() else {}
            policy = run.setdefault(self.step, results.Checkpoint())
            policy.meta |= self.meta
        for task, (entry, details) in scores.items():
            first = next(iter(details["rewards"].values()))  # its numbers are the published ones
            by_k = {name[5:]: first[name]["mean"] for name in first if name.startswith("pass@")}
            policy.datasets = dict(sorted((policy.datasets | {task: entry}).items()))
            for key, value in (("scores", details), ("pass@k", by_k)):
                policy.meta[key] = dict(sorted({**policy.meta.get(key, {}), task: value}.items()))
        store.write_facts()
        save(results.write_base if store.base else results.write, path, run)


def save(write: Callable[[Path, Any], None], path: Path, content: Any) -> None:
    """write(path, content); a full or read-only disk is one line."""
    try:
        write(path, content)
    except OSError as error:
        remedy = "free some space" if error.errno == errno.ENOSPC else "choose another results_dir"
        again = f"{remedy} and run the same command again, finished repeats are kept"
        raise UserError(f"{path}: {error.strerror}; {again}") from error


def read(path: Path) -> list[Record]:
    """The records of one repeat."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, records: list[Record]) -> None:
    save(write_atomic, path, "".join(json.dumps(record) + "\n" for record in records))


def find(
    folder: Path, wanted: list[str], base: str, store: Store, task: str
) -> tuple[list[Target], list[str]]:
    """The checkpoints of a run that `checkpoints=<wanted>` names, by step, and a line for each that
    cannot be scored; base: its model.path. Raises UserError where none can."""
    finished = [checkpoint.path.name for checkpoint in checkpoints.find(folder)]
    patterns = {_pattern(name, finished, folder, store, task) for name in wanted}
    targets, problems = [], []
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
        try:
            targets.append(_target(path, base, store))
        except (ValueError, OSError, KeyError) as error:
            problems.append(f"{path}: {error}")
    if not targets:
        why = "; ".join(problems) or f"{folder} has none yet; wait for one"
        raise UserError(f"{','.join(wanted)}: {why}", key="checkpoints")
    return sorted(targets, key=lambda target: target.step), problems


def _pattern(name: str, finished: list[str], folder: Path, store: Store, task: str) -> str:
    """The checkpoints that one of `checkpoints=` names, among the finished ones by step.

    The best is that of validation questions of `task`, never of test questions: the choice of
    select_on=validation, else of the training.
    """
    if name == "all" or not finished:
        return "checkpoint-*"
    in_training = results.facts_of(folder / "meta.json").get("checkpoint_best") or {}
    best = store.facts.get("best", {}).get(task) or in_training.get("checkpoint")
    path = {"best": best, "last": finished[-1]}.get(name, f"checkpoint-{name}")
    if path is None:
        raise UserError(
            f"best: no checkpoint of {folder} has validation scores on {task}; run evaluate_run.py "
            "select_on=validation first, or train with evaluation.split=validation",
            key="checkpoints",
        )
    if path not in finished:
        steps = ", ".join(path.removeprefix("checkpoint-") for path in finished)
        text = f"{name}: no such checkpoint in {folder}; it has {steps}"
        raise UserError(text, key="checkpoints")
    return path


def _target(path: Path, base: str, store: Store) -> Target:
    """Raises ValueError with the reason why the folder cannot be scored."""
    if (checkpoint := checkpoints.at(path)) is None:
        raise ValueError("not a finished checkpoint (its name, or meta.json missing or unreadable)")
    meta, name = dict(checkpoint.meta), path.name
    if meta["step"] != checkpoint.step:
        raise ValueError(f"meta.json is of step {meta['step']}, of another folder")
    if problem := checkpoints.damage(checkpoint):
        raise ValueError(problem)
    files = meta.pop("files")  # sizes and digests, which the results do not show
    digest = "+".join(f["sha256"] for n, f in sorted(files.items()) if n.endswith(".safetensors"))
    scored = any((store.folder / name).glob("*/repeat-*.jsonl"))
    if scored and store.facts["weights"].get(name) != digest:
        raise ValueError(f"other weights than {store.folder / name}; remove that folder")
    if not is_adapter(path):
        return Target(store, name, checkpoint.step, path, meta, digest)
    adapter = json.loads((path / "adapter_config.json").read_text())
    trained = str(adapter.get("base_model_name_or_path"))
    if not same_model(trained, base):
        raise ValueError(f"adapter of another base ({trained}), the run's is {base}")
    rank = max([adapter["r"], *adapter.get("rank_pattern", {}).values()])
    return Target(store, name, checkpoint.step, path, meta, digest, rank)
