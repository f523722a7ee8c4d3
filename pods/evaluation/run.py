"""checkpoint x task x repeat -> completions -> records on disk -> results/<run>.json.

A finished repeat is on disk at once, and a restart generates only the missing ones.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from pods.config.errors import OutOfMemory, UserError
from pods.config.keys import TrainConfig
from pods.engines import Engine, Limits, Sampling, Work, choose
from pods.evaluation import questions, scoreboard, scores, targets
from pods.evaluation.config import EvaluateConfig, moved, training_config
from pods.evaluation.questions import Questions
from pods.evaluation.scoreboard import Board, Row
from pods.evaluation.targets import Store, Target
from pods.models.policy import load_tokenizer
from pods.runs.folder import provenance

METRICS = {"ans_acc": "correct", "both_acc": "both"}  # published name -> ours
Rows = dict[tuple[str, str], Row]  # (policy, task) -> scores
LoadEngine = Callable[[], Engine]  # loads it at the first call


@dataclass(frozen=True)
class Plan:
    """What one command scores. To make it files are read; nothing is generated or written."""

    config: EvaluateConfig
    training: TrainConfig  # with the paths that the command replaces
    engine: tuple[str, str]  # name and reason
    sampling: Sampling
    repeats: int  # completions of a question; greedy ones do not differ
    versions: list[str]  # graders; the first one fills the published fields
    tokenizer: Any
    base: list[Target]  # the base model, unless its scores here were made otherwise
    checkpoints: list[Target]  # by step
    questions: list[Questions]  # of the test split
    validation: list[Questions]  # with select_on=validation
    skipped: list[str]  # a line for each checkpoint that cannot be scored
    messages: list[str]


def evaluate(config: EvaluateConfig, run: str | None) -> Board:
    """Score one run, or one base model."""
    plan = plan_of(config, run)
    print("\n".join(plan.messages), file=sys.stderr)
    try:
        with ExitStack() as stack:
            engine = cache(lambda: stack.enter_context(build(plan)))
            return select(plan, engine) if config.select_on else score_all(plan, engine)
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"max_sequences={config.max_sequences}: the device is out of memory; lower it, or "
            "gpu_memory_utilization if vllm shares the card"
        ) from error


def plan_of(config: EvaluateConfig, run: str | None) -> Plan:
    """Raises UserError if the command cannot be carried out."""
    engine, trained = choose.for_evaluation(config.engine), training_config(config, run)
    training = moved(trained, config.model_path, config.data_dir)
    names = config.tasks or [trained.task.name]
    checkpoints, skipped, base = [], [], []
    if run:
        folder, store = Path(config.output_dir) / run, Store(config.results_dir, run)
        checkpoints, skipped = targets.find(folder, config.checkpoints, store, names[0])
    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    sample = {"sample": config.questions, "seed": config.seed}
    load = partial(questions.load, config=training, tokenizer=tokenizer, **sample)
    validation = [load(name, "validation") for name in names if config.select_on]
    test, sampling = [load(name, "test") for name in names], choose.sampling(training, config)
    messages = [f"skipped {line}" for line in skipped] + [q.summary for q in validation + test]
    settings = settings_of(config, trained, sampling, engine[0])
    claims = {q.task: settings | q.facts for q in validation + test}
    facts = {"train": trained.model_dump(), **provenance()}  # the model's place in training
    for target in checkpoints[:1]:
        target.store.claim(claims, facts)
    try:
        if not config.select_on:
            base = [Target(Store(config.results_dir, f"base-{training.model.name}", base=True))]
            base[0].store.claim(claims, facts)
    except UserError as error:
        if not run:
            raise
        base = []
        messages.append(f"base model not scored: {error}")
    repeats = config.repeats if sampling.temperature > 0 else 1
    versions = config.rewards or [training.rewards.version]
    return Plan(
        config, training, engine, sampling, repeats, versions, tokenizer, base, checkpoints, test,
        validation, skipped, messages,
    )  # fmt: skip


def settings_of(
    config: EvaluateConfig, trained: TrainConfig, sampling: Sampling, engine: str
) -> dict[str, Any]:
    """Settings that all scores of one task and store share."""
    settings = {"seed": config.seed, "engine": engine, **asdict(sampling)}
    settings["model"] = Path(trained.model.path).name  # one model may lie in several places
    settings |= trained.model.model_dump(include={"dtype", "load_in_4bit"})
    settings |= trained.task.model_dump(include={"style", "system", "date"})
    return json.loads(json.dumps(settings))  # as they are read back


def build(plan: Plan) -> Engine:
    name, reason = plan.engine
    print(f"engine: {name} ({reason})", file=sys.stderr)
    limits = Limits(*(getattr(plan.config, field.name) for field in fields(Limits)))
    rank = max((target.lora_rank or 0 for target in plan.checkpoints), default=0) or None
    return choose.build(name, plan.training, plan.tokenizer, plan.sampling, limits, rank)


def score_all(plan: Plan, engine: LoadEngine) -> Board:
    """The base model and every checkpoint on the test split."""
    policies, files = [*plan.base, *plan.checkpoints], []
    scored = score(plan, engine, policies, plan.questions)
    rows = [scored[target.name, q.task] for q in plan.questions for target in policies]
    note = "picking the best row overstates accuracy; see select_on=validation"
    for store in dict.fromkeys(target.store for target in policies):
        files += [store.summary, store.facts_path, store.folder]
    return Board(rows, [note] if len(policies) > 2 else [], files, plan.skipped)


def select(plan: Plan, engine: LoadEngine) -> Board:
    """Per task: the best checkpoint on the validation split, then its one test score."""
    store, metric = plan.checkpoints[0].store, plan.config.metric
    on_validation, on_test = store.folder / "validation.json", store.folder / "selected.json"
    notes, rows = [], []
    scored = score(plan, engine, plan.checkpoints, plan.validation, on_validation)
    for q, test in zip(plan.validation, plan.questions, strict=True):
        candidates = [scored[target.name, q.task] for target in plan.checkpoints]
        graded = [row.details["rewards"][plan.versions[0]] for row in candidates]
        means = [metrics[METRICS[metric]]["mean"] for metrics in graded]
        best = plan.checkpoints[means.index(max(means))]  # the earliest of equals
        store.facts.setdefault("best", {})[test.task.partition(".")[0]] = best.name
        tested = score(plan, engine, [best], [test], on_test)
        rows += [*candidates, replace(tested[best.name, test.task], chosen=True)]
        choice = f"{best.name}: best {metric} on {q.task}"
        notes.append(f"{choice}; its score on {test.task} was taken once")
    files = [on_validation, on_test, store.facts_path, store.folder]
    return Board(rows, notes, files, plan.skipped)


def score(
    plan: Plan, engine: LoadEngine, policies: Sequence[Target], asked: Sequence[Questions],
    summary: Path | None = None,
) -> Rows:  # fmt: skip
    """Generate the missing repeats, each recorded at once; a policy is summed up once, when its
    last repeat is there."""
    works, rows = list(missing(plan, policies, asked)), {}
    left = Counter(work.label[0].name for work in works)
    for target in policies:
        if target.weights:
            target.store.facts["weights"][target.name] = target.digest
        target.store.write_facts()  # first, so that no file is ever without them
        if not left[target.name]:
            rows |= sum_up(plan, target, asked, summary)
    total = sum(len(work.requests) for work in works)
    with tqdm(total=total, unit=" completions", leave=False, disable=None) as bar:
        for work, groups in engine().generate(works, advance=bar.update) if works else ():
            target, q, path = work.label
            repeat = questions.records(q.rows, groups, plan.tokenizer, plan.sampling.stop)
            scores.grade(repeat, plan.versions, q.kind)
            targets.write(path, repeat)
            left[target.name] -= 1
            if not left[target.name]:
                rows |= (scored := sum_up(plan, target, asked, summary))
                bar.write(scoreboard.line([*scored.values()]), file=sys.stderr)
    return rows


def missing(plan: Plan, policies: Sequence[Target], asked: Sequence[Questions]) -> Iterator[Work]:
    """The work for each (policy, task, repeat) that is not on disk, with its place as label."""
    for target, q, repeat in product(policies, asked, range(plan.repeats)):
        path = target.store.folder / target.name / q.task / f"repeat-{repeat}.jsonl"
        if not path.exists():
            requests = questions.requests(q.task, q.rows, plan.config.seed, target.name, repeat)
            yield Work(requests, target.weights, (target, q, path))


def sum_up(plan: Plan, target: Target, asked: Sequence[Questions], summary: Path | None) -> Rows:
    """The scores of one policy from all its records, written to its summary."""
    by_task, rows, run = {}, {}, target.store.folder.name
    names = (run, target.name) if target.weights else ("", run)
    for q in asked:
        paths = target.store.repeats(target.name, q.task)
        repeats = [targets.read(path) for path in paths]
        for path, repeat in zip(paths, repeats, strict=True):
            if scores.grade(repeat, plan.versions, q.kind):
                targets.write(path, repeat)
        prompts = [row.prompt for row in q.rows]
        by_task[q.task] = scores.summary(repeats, plan.versions, plan.config.pass_at, prompts)
        row = Row(*names, target.meta.get("train_seconds"), q.task, by_task[q.task][1])
        rows[target.name, q.task] = row
    target.publish(by_task, summary)
    return rows
