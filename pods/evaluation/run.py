"""checkpoint x task x repeat -> completions -> records on disk -> results/<run>.json.

A finished repeat is on disk at once, and a restart generates only the missing ones.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from pods import files
from pods.config.errors import OutOfMemory, UserError
from pods.config.functions import load as load_function
from pods.config.keys import TrainConfig, reward_weights
from pods.engines import Engine, Limits, Sampling, Work, choose
from pods.evaluation import questions, records, scoreboard, scores, targets
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.questions import Questions
from pods.evaluation.records import GradedCompletion
from pods.evaluation.scoreboard import Best, Scoreboard
from pods.evaluation.targets import Store, Target
from pods.models.policy import load_tokenizer
from pods.runs import results
from pods.runs.folder import provenance
from pods.runs.results import GREEDY
from pods.scoring import checked

Details = dict[str, dict[str, Any]]  # task -> scores


@dataclass(frozen=True)
class Plan:
    """What one command scores. Making it reads files, and generates and writes nothing."""

    config: EvaluateConfig
    training: TrainConfig  # with the paths that the command replaces
    engine: str
    sampling: Sampling
    versions: list[str]  # graders; the first one fills the published fields
    tokenizer: Any
    policies: list[Target]  # the base model, unless its scores were made otherwise; checkpoints
    questions: list[Questions]
    functions: list[Callable]  # of the training, the user's
    skipped: list[str]  # a line for each checkpoint that cannot be scored
    messages: list[str]


def evaluate(config: EvaluateConfig, run: str | None) -> Scoreboard:
    """Score one run, or one base model."""
    plan = plan_of(config, run)
    print("\n".join(plan.messages), file=sys.stderr)
    try:
        return score_all(plan)
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"max_sequences={config.max_sequences}: the device is out of memory; lower it, or "
            "gpu_memory_utilization if vllm shares the card"
        ) from error


def plan_of(config: EvaluateConfig, run: str | None) -> Plan:
    """Raises UserError if the command cannot be carried out."""
    trained = training_config(config, run)
    engine, reason = choose.for_evaluation(config.engine, trained)
    training = trained.moved(config.model_path, config.data_dir)
    names = list(dict.fromkeys(config.tasks)) or [trained.task.name]
    policies: list[Target] = []
    skipped: list[str] = []
    if run:
        folder = config.output_dir / run
        store = Store(config.results_dir, run)
        policies, skipped = targets.find(folder, config.checkpoints, store, names[0])
    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    sampling = choose.sampling(training, config)
    asked = [
        questions.load(name, config.split, training, tokenizer, config.questions, config.seed)
        for name in names
    ]
    messages = [f"skipped {line}" for line in skipped] + [q.summary for q in asked]
    messages.append(
        f"engine: {engine} ({reason}); temperature {sampling.temperature:g}, "
        f"at most {sampling.max_tokens} tokens, {training.model.dtype}"
    )
    greedy = [replace(q, task=q.task + GREEDY, greedy=True) for q in asked]
    if sampling.temperature == 0:
        asked = greedy
    elif config.greedy:
        asked += greedy
    settings = settings_of(config, trained, sampling, engine)
    claims = {q.task: settings | q.facts for q in asked}
    facts = {"train": trained.model_dump(), **provenance()}  # the model's place in training
    if run:
        store.claim(claims, facts)
    try:
        base = Target(Store(config.results_dir, f"base-{training.model.name}"))
        base.store.claim(claims, facts)
        policies = [base, *policies]
    except UserError as error:
        if not run:
            raise
        messages.append(f"base model not scored: {error}")
    versions = config.rewards or [training.rewards.version]
    return Plan(
        config=config,
        training=training,
        engine=engine,
        sampling=sampling,
        versions=versions,
        tokenizer=tokenizer,
        policies=policies,
        questions=asked,
        functions=[
            checked(load_function(f"rewards.functions.{name}", path), name, required=True)
            for name, path in training.rewards.functions.items()
        ],
        skipped=skipped,
        messages=messages,
    )


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
    """The engine of the plan; a base model alone needs no adapters."""
    limits = Limits(plan.config.max_sequences, plan.config.gpu_memory_utilization)
    adapted = any(target.weights for target in plan.policies)
    rank = plan.training.lora.rank if adapted else None
    return choose.build(plan.engine, plan.training, plan.tokenizer, plan.sampling, limits, rank)


def score_all(plan: Plan) -> Scoreboard:
    """Score the base model and every checkpoint; on validation questions note the best one."""
    scored = score(plan)
    lines: list[scoreboard.Line] = []
    for target in plan.policies:
        lines += scoreboard.lines(target, scored[target.name])
    tasks = dict.fromkeys(line["task"] for line in lines)
    best, notes = [], []
    last = plan.policies[-1]
    if plan.config.split == "validation":
        if last.weights:
            folder = last.weights.parent
            best = [note_best(last.store, folder, task, plan.versions[0]) for task in tasks]
    elif len(plan.policies) > 2:
        notes.append("picking the best row overstates accuracy; see split=validation")
    if not reward_weights(plan.training.rewards).get("correctness"):
        notes.append(
            f"rewards.weights.correctness=0: correct % is by {plan.versions[0]}, which was no "
            "reward of the training"
        )
    return Scoreboard(
        lines,
        best,
        notes,
        files=[target.store.summary for target in plan.policies],
        skipped=plan.skipped,
    )


def note_best(store: Store, folder: Path, task: str, version: str) -> Best:
    """Which checkpoint in the run's folder is best on validation questions by this grader, of all
    that have such scores; it is written into the run's facts."""
    shares = {}
    for step, policy in results.read(store.summary).items():
        graded = policy.meta.get("scores", {}).get(task, {}).get("rewards", {})
        name = f"checkpoint-{step}"
        if version in graded and (folder / name).is_dir():
            shares[name] = graded[version]["correct"]["mean"]
    best = max(shares, key=shares.__getitem__)  # the earliest of equals
    store.facts.setdefault("best", {})[task.partition(".")[0]] = best
    store.write_facts()
    return Best(task, folder.name, best, shares[best])


def score(plan: Plan) -> dict[str, Details]:
    """Generate and record the missing repeats of each policy, and sum it up."""
    repeats = {target.name: missing(plan, target) for target in plan.policies}
    total = sum(len(q.rows) for of_policy in repeats.values() for q, _, _ in of_policy)
    scored: dict[str, Details] = {}
    bar = tqdm(total=total, unit=" completions", leave=False, disable=None)
    with build(plan) if total else nullcontext() as engine, bar:
        for target in plan.policies:
            if target.weights:
                target.note_weights()
            target.store.write_facts()  # first, so that no file is ever without them
            for length in generate(plan, engine, target, repeats[target.name]):
                bar.update(length)
            scored[target.name] = sum_up(plan, target)
            for task, details in scored[target.name].items() if repeats[target.name] else ():
                first = next(iter(details["rewards"].values()))  # of the graders
                correct = first["correct"]["mean"]
                bar.write(f"{target.name}: {task} {correct:.1%} correct", file=sys.stderr)
    return scored


def missing(plan: Plan, target: Target) -> list[tuple[Questions, int, Path]]:
    """The repeats of a policy that are not on disk, with their paths."""
    repeats = []
    for q in plan.questions:
        for path in target.repeats(q.task):
            if not is_whole(path, q):
                copy = path.rename(files.aside(path))
                print(f"{path}: lacks questions, or has others; moved to {copy}", file=sys.stderr)
        for repeat in range(1 if q.greedy else plan.config.repeats):  # greedy ones do not differ
            path = target.store.folder / target.name / q.task / f"repeat-{repeat}.jsonl"
            if not path.exists():
                repeats.append((q, repeat, path))
    return repeats


def is_whole(path: Path, q: Questions) -> bool:
    """Whether a file has a record of every question, in their order."""
    repeat = files.read_lines(path)
    if not all(record.keys() >= GradedCompletion.__required_keys__ for record in repeat):
        return False
    return [record["id"] for record in repeat] == [row["id"] for row in q.rows]


def generate(
    plan: Plan, engine: Engine, target: Target, repeats: list[tuple[Questions, int, Path]]
) -> Iterator[int]:
    """Write the ungraded records of these repeats (sum_up grades them); yields the number of
    completions of each."""
    works = [
        Work(
            questions.requests(q.task, q.rows, plan.config.seed, target.name, repeat),
            target.weights,
            greedy=q.greedy,
        )
        for q, repeat, _ in repeats
    ]
    answers = engine.generate(works) if works else []
    for (q, _, path), (_, groups) in zip(repeats, answers, strict=True):
        records.write(path, questions.records(q.rows, groups, plan.tokenizer, plan.sampling.stop))
        yield len(groups)


def sum_up(plan: Plan, target: Target) -> Details:
    """The scores of one policy from all its records, written to its summary. Missing grades are
    added; on the run's own task the values of its reward functions are set."""
    by_task = {}
    for q in plan.questions:
        functions = plan.functions if q.task.partition(".")[0] == plan.training.task.name else []
        paths = target.repeats(q.task)
        repeats = [files.read_lines(path) for path in paths]
        for path, repeat in zip(paths, repeats, strict=True):
            before = deepcopy(repeat)
            scores.reward(repeat, q.rows, functions, plan.tokenizer)
            scores.grade(repeat, plan.versions, q.kind)
            if repeat != before:
                records.write(path, repeat)
        prompts = [row["prompt"] for row in q.rows]
        by_task[q.task] = scores.summary(repeats, plan.versions, plan.config.pass_at, prompts)
    target.publish(by_task)
    return {task: details for task, (_, details) in by_task.items()}
