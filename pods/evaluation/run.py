"""checkpoint x task x repeat -> completions -> records on disk -> results/<run>.json.

A finished repeat is on disk at once, and a restart generates only the missing ones.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from pods import files
from pods.config.errors import OutOfMemory
from pods.config.functions import load as load_function
from pods.config.keys import TrainConfig, reward_weights, typed_as
from pods.config.paths import as_typed
from pods.config.sweeps import evaluate_command
from pods.engines import Engine, Limits, Sampling, Work, choose
from pods.evaluation import questions, records, scoreboard, scores, targets
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.questions import Questions
from pods.evaluation.scoreboard import Scoreboard
from pods.evaluation.targets import Store, Target
from pods.models.policy import load_tokenizer
from pods.runs.folder import provenance
from pods.runs.results import GREEDY
from pods.scoring import checked

Repeat = tuple[Questions, int, Path]  # its number, and the file of its records


@dataclass(frozen=True)
class Plan:
    """What one command scores. Making it reads files, and generates and writes nothing."""

    config: EvaluateConfig
    trained: TrainConfig
    training: TrainConfig  # with the paths that the command replaces
    engine: str
    sampling: Sampling
    tokenizer: Any
    checkpoints: list[Target]  # of the run, if there is one
    questions: list[Questions]
    functions: list[Callable]  # of the training, the user's
    skipped: list[str]  # a line for each checkpoint that cannot be scored

    @property
    def versions(self) -> list[str]:
        """The graders; the first one fills the published fields."""
        return self.config.rewards or [self.training.rewards.version]

    @cached_property
    def settings(self) -> targets.Settings:
        """What all scores of a task have in common: two such scores can be compared."""
        settings = {"seed": self.config.seed, "engine": self.engine, **asdict(self.sampling)}
        # By its name: one model may lie in several places.
        settings["model"] = Path(self.trained.model.path).name
        settings |= self.trained.model.model_dump(include={"dtype", "load_in_4bit"})
        settings |= self.trained.task.model_dump(include={"style", "system", "date"})
        settings = json.loads(json.dumps(settings))  # as they are read back
        return {q.task: settings | q.facts for q in self.questions}


def evaluate(config: EvaluateConfig, run: str | None) -> Scoreboard:
    """Score one run and its base model, or one base model."""
    plan = plan_of(config, run)
    with ExitStack() as stack:
        engine = cache(lambda: stack.enter_context(build(plan)))  # with the first missing repeat
        try:
            return score_all(plan, engine, run)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(
                f"max_sequences={config.max_sequences}: the device is out of memory; lower it, or "
                "gpu_memory_utilization if vllm shares the card"
            ) from error


def plan_of(config: EvaluateConfig, run: str | None) -> Plan:
    """Raises UserError if the command cannot be carried out; prints what it is going to do."""
    trained = training_config(config, run)
    engine, reason = choose.for_evaluation(config.engine, trained)
    training = trained.moved(config.model_path, config.data_dir)
    names = list(dict.fromkeys(config.tasks)) or [trained.task.name]
    checkpoints: list[Target] = []
    skipped: list[str] = []
    if run:
        store = Store(config.results_dir, run)
        checkpoints, skipped = targets.find(
            config.output_dir / run, config.checkpoints, store, names[0]
        )
    tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
    sampling = choose.sampling(training, config)
    asked = [
        questions.load(name, config.split, training, tokenizer, config.questions, config.seed)
        for name in names
    ]
    for q in asked:
        questions.by_value(q, config.by)  # before a model loads
    print(
        *([f"run={run}"] if run else []),
        *(f"skipped {line}" for line in skipped),
        *(q.summary for q in asked),
        f"engine: {engine} ({reason}); temperature {sampling.temperature:g}, "
        f"at most {sampling.max_tokens} tokens, {training.model.dtype}",
        sep="\n",
        file=sys.stderr,
    )
    greedy = [replace(q, task=q.task + GREEDY, greedy=True) for q in asked]
    if sampling.temperature == 0:
        asked = greedy
    elif config.greedy:
        asked += greedy
    return Plan(
        config=config,
        trained=trained,
        training=training,
        engine=engine,
        sampling=sampling,
        tokenizer=tokenizer,
        checkpoints=checkpoints,
        questions=asked,
        functions=[
            checked(load_function(f"rewards.functions.{name}", path), name, required=True)
            for name, path in training.rewards.functions.items()
        ],
        skipped=skipped,
    )


def build(plan: Plan) -> Engine:
    """The engine of the plan; a base model alone needs no adapters."""
    limits = Limits(plan.config.max_sequences, plan.config.gpu_memory_utilization)
    rank = plan.training.lora.rank if plan.checkpoints else None
    return choose.build(plan.engine, plan.training, plan.tokenizer, plan.sampling, limits, rank)


def score_all(plan: Plan, engine: Callable[[], Engine], run: str | None) -> Scoreboard:
    """Score every checkpoint and the base model; on validation questions name the best one."""
    results_dir, output_dir = plan.config.results_dir, plan.config.output_dir
    lines: list[scoreboard.Line] = []
    notes, summaries = [], []
    if run:
        with targets.held(results_dir, run, plan.settings) as store:
            lines = score(plan, engine, store, plan.checkpoints)
            summaries.append(store.summary)
        if plan.config.split == "validation":
            for task in dict.fromkeys(line["task"] for line in lines if "/" not in line["task"]):
                name, share = targets.best(store.scores, output_dir / run, task)
                words = [typed_as("run", run), "split=test", "checkpoints=best"]
                places = {"output_dir": output_dir, "results_dir": results_dir}
                once = evaluate_command(*words, trust=plan.config.trust_code, **places)
                notes.append(
                    f"{run}, {name}: best on {task}, {share:.1%}; score it once: {as_typed(once)}"
                )
        elif len(plan.checkpoints) > 1:
            notes.append("picking the best row overstates accuracy; see split=validation")
    name = f"base-{plan.training.model.name}"
    with targets.held(results_dir, name, plan.settings, base=True) as store:
        lines = score(plan, engine, store, [Target()]) + lines
        summaries.insert(0, store.summary)
    if not reward_weights(plan.training.rewards).get("correctness"):
        notes.append(
            f"rewards.weights.correctness=0: correct % is by {plan.versions[0]}, which was no "
            "reward of the training"
        )
    return Scoreboard(lines, notes, summaries, plan.skipped)


def score(
    plan: Plan, engine: Callable[[], Engine], store: Store, policies: list[Target]
) -> list[scoreboard.Line]:
    """Generate and record the missing repeats of each policy, and sum it up: lines of the table."""
    train = plan.trained.model_dump()  # the model's place in training
    store.facts = provenance() | store.facts | {"train": train}  # that of the first scores
    repeats = {target.name: missing(plan, store, target) for target in policies}
    total = sum(len(q.rows) for of_policy in repeats.values() for q, _, _ in of_policy)
    lines = []
    with tqdm(total=total, unit=" completions", leave=False, disable=None) as bar:
        for target in policies:
            for length in generate(plan, engine, store, target, repeats[target.name]):
                bar.update(length)
            scored = sum_up(plan, store, target)
            lines += scoreboard.lines(store, target, scored)
            for task, details in scored.items() if repeats[target.name] else ():
                first = next(iter(details["rewards"].values()))  # of the graders
                correct = first["correct"]["mean"]
                bar.write(f"{target.name}: {task} {correct:.1%} correct", file=sys.stderr)
    return lines


def missing(plan: Plan, store: Store, target: Target) -> list[Repeat]:
    """The repeats of a policy that are not on disk; one that lacks questions is removed first."""
    repeats = []
    for q in plan.questions:
        ids = [row["id"] for row in q.rows]
        for path in store.repeats(target.name, q.task):
            if [record.get("id") for record in files.read_lines(path)] != ids:
                path.unlink()
                print(f"{path}: incomplete or of other questions; removed", file=sys.stderr)
        for repeat in range(1 if q.greedy else plan.config.repeats):  # greedy ones do not differ
            path = store.folder / target.name / q.task / f"repeat-{repeat}.jsonl"
            if not path.exists():
                repeats.append((q, repeat, path))
    return repeats


def generate(
    plan: Plan,
    engine: Callable[[], Engine],
    store: Store,
    target: Target,
    repeats: list[Repeat],
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
    answers = engine().generate(works) if works else []
    for (q, _, path), (_, groups) in zip(repeats, answers, strict=True):
        store.note(q.task, plan.settings[q.task], target)
        store.write_facts()
        records.write(path, questions.records(q.rows, groups, plan.tokenizer, plan.sampling.stop))
        yield len(groups)


def sum_up(plan: Plan, store: Store, target: Target) -> dict[str, dict[str, Any]]:
    """The scores of one policy by task from all its records, also put into the summary. Missing
    grades are added; on the run's own task the values of its reward functions are set."""
    scored = {}
    for q in plan.questions:
        functions = plan.functions if q.task.partition(".")[0] == plan.training.task.name else []
        paths = store.repeats(target.name, q.task)
        repeats = [files.read_lines(path) for path in paths]
        for path, repeat in zip(paths, repeats, strict=True):
            before = deepcopy(repeat)
            scores.reward(repeat, q.rows, functions, plan.tokenizer)
            scores.grade(repeat, plan.versions, q.kind)
            if repeat != before:
                records.write(path, repeat)
        for task, numbers in questions.by_value(q, plan.config.by).items():
            prompts = [q.rows[i]["prompt"] for i in numbers]
            own = [[repeat[i] for i in numbers] for repeat in repeats]
            entry, details = scores.summary(own, plan.versions, plan.config.pass_at, prompts)
            settings = plan.settings[q.task] | {"questions": len(numbers)}
            store.note(task, settings, target)
            store.add(target, task, entry, details)
            scored[task] = details
    return scored
