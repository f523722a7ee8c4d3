"""What one evaluate_run.py command scores: policies, questions, sampling, and why not the others.

To make a Plan files are read, but nothing is generated, printed or written.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import Sampling, choose
from pods.evaluation import questions, targets
from pods.evaluation.config import EvaluateConfig, as_list, moved, training_config
from pods.evaluation.questions import Questions
from pods.evaluation.records import Store
from pods.evaluation.targets import Target
from pods.models.policy import load_tokenizer
from pods.runs.folder import provenance


@dataclass(frozen=True)
class Plan:
    config: EvaluateConfig
    training: TrainConfig  # with the paths that the command replaces
    engine: tuple[str, str]  # name and reason
    sampling: Sampling
    tokenizer: Any
    base: list[Target]  # the base model, unless its scores here were made otherwise
    checkpoints: list[Target]  # by step
    skipped: list[str]  # a line for each checkpoint that cannot be scored
    questions: list[Questions]  # of the test split
    validation: list[Questions]  # with select_on=validation
    messages: list[str]

    @classmethod
    def of(cls, config: EvaluateConfig) -> "Plan":
        """Raises UserError where the command cannot be carried out."""
        engine, trained = choose.for_evaluation(config.engine), training_config(config)
        training = moved(trained, config)
        checkpoints, skipped = _checkpoints(config, trained) if config.run else ([], [])
        tokenizer = load_tokenizer(training.model.path, training.model.pad_token)
        sampling = choose.sampling(training, config)
        validation = _load(config, training, tokenizer, "validation") if config.select_on else []
        test = _load(config, training, tokenizer, "test")
        messages = [*(f"skipped {line}" for line in skipped), *(q.count for q in validation + test)]
        # The base is named as in training: it may have been moved since.
        noted = training.model_copy(update={"model": trained.model})
        facts = {"train": noted.model_dump(), **provenance()}
        settings = _settings(config, training, sampling, engine[0])
        claim = partial(_claim, settings, facts, validation + test)
        if checkpoints:
            claim(checkpoints[0].store)
        base = []
        try:
            base += [] if config.select_on else [_base(config, trained, claim)]
        except UserError as error:
            if not config.run:
                raise
            messages.append(f"base model not scored: {error}")
        return cls(
            config, training, engine, sampling, tokenizer, base, checkpoints, skipped, test,
            validation, messages,
        )  # fmt: skip

    @property
    def versions(self) -> list[str]:
        """The graders; the first one fills the published fields."""
        return as_list(self.config.rewards) or [self.training.rewards.version]

    @property
    def repeats(self) -> int:
        """Completions of a question; greedy ones do not differ."""
        return self.config.repeats if self.sampling.temperature > 0 else 1

    @property
    def lora_rank(self) -> int | None:
        """The largest rank of an adapter to come."""
        own = self.training.lora.rank if self.config.run else None
        return max([own or 0, *(t.lora_rank or 0 for t in self.checkpoints)]) or None


def _checkpoints(config: EvaluateConfig, trained: TrainConfig) -> tuple[list[Target], list[str]]:
    folder = Path(config.output_dir) / config.run
    store = Store(Path(config.results_dir), config.run)
    store.refuse_mixture(from_training=False)
    task = (as_list(config.tasks) or [trained.task.name])[0]
    steps = targets.wanted_steps(as_list(config.checkpoints), folder, store, task)
    scorable, problems = targets.find(folder, steps, trained.model.path, store)
    if not scorable:
        why = "; ".join(problems) or "none has been saved; wait for one"
        raise UserError(f"run={config.run}: no checkpoints to score in {folder}: {why}")
    return scorable, problems


def _load(
    config: EvaluateConfig, training: TrainConfig, tokenizer: Any, split: str
) -> list[Questions]:
    names = as_list(config.tasks) or [training.task.name]
    keys = (split, training, tokenizer, config.questions, config.seed)
    return [questions.load(name, *keys) for name in names]


def _settings(
    config: EvaluateConfig, training: TrainConfig, sampling: Sampling, engine: str
) -> dict[str, Any]:
    """What all scores of one task and store must have in common."""
    model, task = training.model, training.task
    settings = {"seed": config.seed, "engine": engine, **asdict(sampling)}
    settings |= {"stop": list(sampling.stop), "model": model.name, "dtype": model.dtype}
    settings |= {"load_in_4bit": model.load_in_4bit, "style": task.style}
    settings |= {"system": task.system, "date": task.date}
    del settings["ends"]  # the model's
    return settings


def _claim(
    settings: dict[str, Any], facts: dict[str, Any], asked: list[Questions], store: Store
) -> None:
    for q in asked:
        store.claim(q.task, settings | q.facts, **facts)


def _base(config: EvaluateConfig, trained: TrainConfig, claim: Callable[[Store], None]) -> Target:
    """Raises UserError where another base model of this name was scored, or this one otherwise."""
    name, path = trained.model.name, trained.model.path
    store = Store(Path(config.results_dir), f"base-{name}", base=True)
    scored = store.facts.get("train", {}).get("model", {}).get("path", path)
    if Path(scored).name != Path(path).name:  # one model may lie in several places
        raise UserError(
            f"model.name={name}: {store.summary} has the scores of {scored}, and this base is "
            f"{path}; set another model.name in training, or another results_dir"
        )
    claim(store)
    return Target(store)
