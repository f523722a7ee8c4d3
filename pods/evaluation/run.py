"""checkpoint x task x repeat -> completions -> records on disk -> results/<run>.json.

Departs from the published script: nothing is merged or reloaded, a finished repeat is on disk at
once, a restart generates only the missing repeats, and every completion has a separate seed.
    uv run evaluate_run.py run=<run>
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import rewards
from pods.config.errors import OutOfMemory
from pods.engines import Completion, Engine, Limits, Request, Work, choose, seed_of, texts
from pods.evaluation import records, scoreboard, scores
from pods.evaluation.config import METRICS, EvaluateConfig
from pods.evaluation.plan import Plan
from pods.evaluation.questions import Questions
from pods.evaluation.records import Record
from pods.evaluation.scoreboard import Board, Row
from pods.evaluation.targets import Target

Details = dict[tuple[str, str], dict[str, Any]]  # (policy, task) -> metrics with intervals
LoadEngine = Callable[[], Engine]


def evaluate(config: EvaluateConfig) -> Board:
    """Score one run, or one base model."""
    plan = Plan.of(config)
    print("\n".join(plan.messages), file=sys.stderr)
    with _loaded_when_needed(plan) as engine:
        return select(plan, engine) if config.select_on else score_all(plan, engine)


def score_all(plan: Plan, engine: LoadEngine) -> Board:
    """The base model and every checkpoint on the test split."""
    policies = [*plan.base, *plan.checkpoints]
    details = score(plan, engine, policies, plan.questions)
    rows = [_row(target, q, details) for q in plan.questions for target in policies]
    notes = [q.note for q in plan.questions if q.total]
    if len(policies) > 2:
        notes.append("picking the best row overstates accuracy; see select_on=validation")
    return Board(rows, notes, [path for t in policies for path in t.store.files()], plan.skipped)


def select(plan: Plan, engine: LoadEngine) -> Board:
    """Per task: the best checkpoint on the validation split, then its one test score."""
    store, metric = plan.checkpoints[0].store, plan.config.metric
    name, grader = METRICS.get(metric, metric), plan.versions[0]
    on_validation, on_test = store.folder / "validation.json", store.folder / "selected.json"
    notes, rows = [q.note for q in plan.validation + plan.questions if q.total], []
    details = score(plan, engine, plan.checkpoints, plan.validation, on_validation)
    for q, test in zip(plan.validation, plan.questions, strict=True):
        candidates = [_row(target, q, details) for target in plan.checkpoints]
        means = [row.details["rewards"][grader][name]["mean"] for row in candidates]
        best = plan.checkpoints[means.index(max(means))]  # the earliest of equals
        store.facts.setdefault("best", {})[test.name] = best.name  # for checkpoints=best
        tested = score(plan, engine, [best], [test], on_test)
        rows += [*candidates, replace(_row(best, test, tested), chosen=True)]
        on = f"{best.name}: best {metric} on {q.task}"
        notes.append(f"{on}; its score on {test.task} was taken once")
    return Board(rows, notes, [*store.files(on_validation), on_test], plan.skipped)


def score(
    plan: Plan, engine: LoadEngine, policies: Sequence[Target], asked: Sequence[Questions],
    summary: Path | None = None,
) -> Details:  # fmt: skip
    """Generate the missing repeats, each recorded at once; a policy is summed up once, when its
    last repeat is there."""
    works = list(missing(plan, policies, asked))
    left = Counter(work.label[0].name for work in works)
    for target in policies:
        if target.weights:
            target.store.facts["weights"][target.name] = target.digest
        target.store.write_facts()  # first, so that no file is ever without them
    details: Details = {}
    for target in policies:
        if not left[target.name]:
            details |= sum_up(plan, target, asked, summary)
    total = sum(len(work.requests) for work in works)
    with tqdm(total=total, unit=" completions", leave=False, disable=None) as bar:
        for work, groups in engine().generate(works, advance=bar.update) if works else ():
            target, q, path = work.label
            records.write(path, _records(plan, q, [completion for (completion,) in groups]))
            left[target.name] -= 1
            if not left[target.name]:
                details |= sum_up(plan, target, asked, summary)
                line = scoreboard.line(target.name, [_row(target, q, details) for q in asked])
                bar.write(line, file=sys.stderr)
    return details


def missing(plan: Plan, policies: Sequence[Target], asked: Sequence[Questions]) -> Iterator[Work]:
    """The work for each (policy, task, repeat) that is not on disk, with its place as label."""
    for target, q, repeat in product(policies, asked, range(plan.repeats)):
        path = target.store.path(target.name, q.task, repeat)
        if not path.exists():
            names = (plan.config.seed, target.name, q.task)
            requests = [
                Request(prompt, [seed_of(*names, id_, repeat)])
                for prompt, id_ in zip(q.prompt_ids, q.ids, strict=True)
            ]
            yield Work(requests, target.weights, (target, q, path))


def sum_up(plan: Plan, target: Target, asked: Sequence[Questions], summary: Path | None) -> Details:
    """The scores of one policy from all its records, written to its summary."""
    by_task = {}
    for q in asked:
        files = target.store.repeats(target.name, q.task)
        repeats = [scores.graded(path, plan.versions, q.kind) for path in files]
        entry = scores.entry(repeats, plan.versions[0], q.prompts)
        by_task[q.task] = entry, scores.details(repeats, plan.versions, plan.config.pass_at)
    target.store.publish(summary or target.store.summary, target.step, target.meta, by_task)
    return {(target.name, task): details for task, (_, details) in by_task.items()}


def _records(plan: Plan, q: Questions, completions: Sequence[Completion]) -> list[Record]:
    written = texts(plan.tokenizer, completions, plan.sampling.stop)
    columns = zip(q.ids, q.answers, written, completions, strict=True)
    repeat = [
        {"id": id_, "answer": answer, "completion": text, "tokens": len(completion.token_ids),
         "truncated": completion.clipped, "well_formed": rewards.is_well_formed(text),
         "correct": {}}
        for id_, answer, text, completion in columns
    ]  # fmt: skip
    scores.grade(repeat, plan.versions, q.kind)
    return repeat


def _row(target: Target, q: Questions, details: Details) -> Row:
    name, seconds = target.store.folder.name, target.meta.get("train_seconds")
    run, policy = (name, target.name) if target.weights else ("", name)
    return Row(run, policy, seconds, q.task, details[target.name, q.task])


@contextmanager
def _loaded_when_needed(plan: Plan) -> Iterator[LoadEngine]:
    """The engine, loaded at the first call; its memory is freed at the end of the block."""
    name, reason = plan.engine
    limits = Limits(**{item.name: getattr(plan.config, item.name) for item in fields(Limits)})
    with ExitStack() as stack:

        @cache
        def load() -> Engine:
            print(f"engine: {name} ({reason})", file=sys.stderr)
            keys = plan.training, plan.tokenizer, plan.sampling, limits, plan.lora_rank
            return stack.enter_context(choose.build(name, *keys))

        try:
            yield load
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(
                f"max_sequences={limits.max_sequences}: the device is out of memory; lower it, or "
                "gpu_memory_utilization where vllm shares the card"
            ) from error
