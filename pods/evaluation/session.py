"""One run of an evaluate_run.py command: finds the policies, loads the engine, scores."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pods.config.errors import OutOfMemory, UserError
from pods.engines import Engine, Limits
from pods.engines import evaluation as engines
from pods.engines.training import sampling
from pods.evaluation import candidates, questions, scoreboard
from pods.evaluation.config import (
    METRICS,
    EvaluateConfig,
    as_list,
    reported_metric,
    training_config,
)
from pods.evaluation.evaluation import Evaluation, Summary, Target
from pods.evaluation.from_training import refuse_mixture
from pods.evaluation.questions import Questions
from pods.evaluation.records import Store
from pods.models.policy import load_tokenizer
from pods.runs import folder as runs

POLL_SECONDS = 5.0  # between two looks for new checkpoints with watch=true


class Session(ExitStack):
    """A context manager: the engine is freed at the end of the block."""

    def __init__(self, config: EvaluateConfig, engine: str, reason: str) -> None:
        super().__init__()
        self.config, self.training = config, training_config(config)
        self.rows: list[scoreboard.Row] = []
        self.notes: list[str] = []
        self.files: list[Path] = []
        self.skipped: list[str] = []
        self._base_path = training_config(config, moved=False).model.path
        self._err = Console(stderr=True, highlight=False)
        self._sampling = sampling(self.training, config)
        self._name, self._reason = engine, reason
        self._folder = Path(config.output_dir) / config.run if config.run else None
        self._seen: set[str] = set()
        self._lora_rank = self.training.lora.rank if config.run else None
        self._summary: Summary | None = None
        if config.run:
            store = Store(Path(config.results_dir), config.run)
            refuse_mixture(store, from_training=False)
            validation = store.folder / "validation.json"
            self._summary = Summary(validation if config.select_on else store.summary, store)
            task = (as_list(config.tasks) or [self.training.task.name])[0]
            wanted = as_list(config.checkpoints)
            self._seen = candidates.left_out(self._folder, wanted, store, task, self._metric(task))
        self._targets = self._new_targets()
        if self._folder and not self._targets and not config.watch:
            why = "; ".join(self.skipped) or "none has been saved; wait for one, or set watch=true"
            raise UserError(f"run={config.run}: no checkpoints to score in {self._folder}: {why}")
        self._tokenizer = load_tokenizer(self.training.model.path, self.training.model.pad_token)
        self._engine: Engine | None = None
        if best := self._folder and runs.checkpoint_best(self._folder):
            self._err.print(f"best on validation in training: {best['checkpoint']}")

    def score_everything(self) -> None:
        """The base model and every checkpoint on the test split, with watch=true as they appear."""
        evaluation = self._evaluation("test")
        targets = self._base(evaluation)
        if self._summary:
            self._claim(self._summary.store, evaluation.questions)
            targets += self._targets
        self._run(evaluation, targets)
        while self.config.watch and self._folder:
            ended = not runs.is_training(self._folder)  # asked before looking: nothing is missed
            new = self._new_targets()
            self._run(evaluation, new)
            targets += new
            if ended:
                break
            time.sleep(POLL_SECONDS)
        self.rows = [_row(target, q.task) for q in evaluation.questions for target in targets]
        if len(targets) > 2:
            self.notes.append("picking the best row overstates accuracy; see select_on=validation")

    def select(self) -> None:
        """Per task: the best checkpoint on the validation split, then its one test score."""
        validation, test = self._evaluation("validation"), self._evaluation("test")
        store = self._summary.store
        self._claim(store, [*validation.questions, *test.questions])
        self._run(validation, self._targets)
        selected = Summary(store.folder / "selected.json", store)
        for q, test_q in zip(validation.questions, test.questions, strict=True):
            rows = [_row(target, q.task) for target in self._targets]
            metric = self._metric(test_q.task)
            name = METRICS.get(metric, metric)
            scores = [r.details["rewards"][test.versions[0]][name]["mean"] for r in rows]
            best = self._targets[scores.index(max(scores))]  # the earliest of equals
            best = replace(best, summary=selected)
            self._run(replace(test, questions=[test_q]), [best])
            self.rows += [*rows, _row(best, test_q.task)._replace(chosen=True)]
            on = f"{best.name}: best {metric} on {q.task}"
            self.notes.append(f"{on}; its score on {test_q.task} was taken once")

    def _evaluation(self, split: str) -> Evaluation:
        config = self.config
        names = as_list(config.tasks) or [self.training.task.name]
        source, drawn = (self.training, self._tokenizer), (config.questions, config.seed)
        loaded = [questions.load(name, split, *source, *drawn) for name in names]
        for q in loaded:
            left_out = f", {q.dropped} longer than in training left out" if q.dropped else ""
            self._err.print(f"{q.task}: {len(q.ids)} questions{left_out}")
            if q.total:
                self.notes.append(f"{q.task}: a sample of {len(q.ids)} of {q.total} questions")
        versions = as_list(config.rewards) or [self.training.rewards.version]
        # Greedy completions do not differ between repeats.
        repeats = config.repeats if self._sampling.temperature > 0 else 1
        settings = repeats, config.seed, versions, config.pass_at
        return Evaluation(loaded, *settings, self._tokenizer, self._sampling.stop)

    def _metric(self, task: str) -> str:
        """What a checkpoint is chosen by; task: also <task>.sample<number>."""
        name = self.training.model.name
        return self.config.metric or reported_metric(task.partition(".")[0], name)

    def _claim(self, store: Store, sets: Sequence[Questions]) -> None:
        model, task = self.training.model, self.training.task
        settings = {"seed": self.config.seed, "engine": self._name, **asdict(self._sampling)}
        settings |= {"stop": list(self._sampling.stop), "model": model.name, "dtype": model.dtype}
        settings |= {"load_in_4bit": model.load_in_4bit, "style": task.style}
        settings |= {"system": task.system, "date": task.date}
        del settings["ends"]  # the model's
        trained = asdict(self.training)
        trained["model"]["path"] = self._base_path  # where it lay in training: it may be moved now
        facts = {"train": trained, **runs.provenance()}
        for q in sets:
            asked = {"questions": len(q.ids), "dropped": q.dropped, "digest": q.digest}
            asked |= {"sampled_from": q.total} if q.total else {}
            store.claim(q.task, settings | asked, **facts)

    def _base(self, evaluation: Evaluation) -> list[Target]:
        """The base model, unless another run had it scored in another way: then that stays."""
        try:
            store = Store(Path(self.config.results_dir), f"base-{self.training.model.name}")
            self._check_base(store)
            self._claim(store, evaluation.questions)
        except UserError as error:
            if not self.config.run:
                raise
            self._err.print(f"base model not scored: {error}", style="yellow", soft_wrap=True)
            return []
        return [Target(Summary(store.summary, store, base=True))]

    def _check_base(self, store: Store) -> None:
        """UserError where another base model with the same model.name was scored."""
        name, path = self.training.model.name, self._base_path
        scored = store.facts.get("train", {}).get("model", {}).get("path", path)
        if Path(scored).name != Path(path).name:  # one model may lie in several places
            raise UserError(
                f"model.name={name}: {store.summary} has the scores of {scored}, and this "
                f"base is {path}; set another model.name in training, or another results_dir"
            )

    def _new_targets(self) -> list[Target]:
        """Checkpoints that were not there before; bad ones are named and skipped."""
        if not self._folder:
            return []
        targets, problems = candidates.find(
            self._folder, self._base_path, self._summary, self._seen
        )
        self._lora_rank = max([self._lora_rank or 0, *(t.lora_rank or 0 for t in targets)]) or None
        for problem in problems:
            self._err.print(f"skipped {problem}", style="yellow", soft_wrap=True)
        self.skipped += problems
        return targets

    def _run(self, evaluation: Evaluation, targets: Sequence[Target]) -> None:
        self.files += [path for target in targets for path in target.summary.files]
        works = evaluation.missing(targets)
        total = sum(len(work.requests) for work in works)
        columns = TextColumn("completions"), BarColumn(), MofNCompleteColumn()
        with Progress(
            *columns, TimeRemainingColumn(), console=self._err, disable=not total, transient=True
        ) as progress:
            bar = progress.add_task("", total=total)
            advance = partial(progress.advance, bar)
            try:
                for target in evaluation.run(self._load_engine, targets, works, advance):
                    names = [q.task for q in evaluation.questions]
                    scores = [(name, target.summary.details(target, name)) for name in names]
                    seconds = target.meta.get("train_seconds")
                    progress.print(scoreboard.line(target.name, seconds, scores), soft_wrap=True)
            except torch.OutOfMemoryError as error:
                raise OutOfMemory(
                    f"max_sequences={self.config.max_sequences}: the device is out of memory; "
                    "lower it, or gpu_memory_utilization where vllm shares the card"
                ) from error

    def _load_engine(self) -> Engine:
        if self._engine is None:
            self._err.print(f"engine: {self._name} ({self._reason})")
            limits = {item.name: getattr(self.config, item.name) for item in fields(Limits)}
            built = engines.build(
                self._name, self.training, self._tokenizer, self._sampling, Limits(**limits),
                self._lora_rank,
            )  # fmt: skip
            self._engine = self.enter_context(built)
        return self._engine


def _row(target: Target, task: str) -> scoreboard.Row:
    name, seconds = target.summary.store.folder.name, target.meta.get("train_seconds")
    run, policy = (name, target.name) if target.weights else ("", name)
    return scoreboard.Row(run, policy, seconds, task, target.summary.details(target, task))
