"""Accuracy of the policy while it trains, on the run's own task: metrics under eval/*.

One completion a question, drawn as in training, by the engine of the training; evaluate_run.py has
the whole protocol, with repeats.
    uv run train.py evaluation.every_seconds=20
    uv run evaluate_run.py run=<run> from_training=true    # these scores as results/<run>.json
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from pods import ranks
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import EVALUATION, Engine, LivePolicy, Work
from pods.evaluation import questions, scores
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.questions import Question
from pods.evaluation.scoreboard import Board, Row
from pods.evaluation.targets import Record, Store, save
from pods.runs import results
from pods.runs.folder import read_metrics

VERDICTS = {  # column of evaluations.jsonl -> eval/<metric>
    "correct": "accuracy", "well_formed": "well_formed", "tokens": "completion_length_mean",
    "clipped": "clipped_ratio",
}  # fmt: skip
COUNTERS = ("train_seconds", "tokens/generated", "tokens/trained")
NOTE = "one completion per question; picking the best row overstates accuracy"
REMEDY = "leave from_training out to score the checkpoints"


class MidRun:
    """(policy, step, its metrics) -> eval/*; appends them to `path` with all verdicts."""

    def __init__(self, config: TrainConfig, engine: Engine, tokenizer: Any, path: Path) -> None:
        self.config, self.engine, self.tokenizer, self.path = config, engine, tokenizer, path
        settings = config.evaluation
        self.questions = questions.load(config.task.name, settings.split, config, tokenizer)
        self.rows = self.questions.rows[: settings.questions]

    def __call__(self, live: LivePolicy, step: int, metrics: dict[str, float]) -> dict[str, float]:
        started = time.monotonic()
        records = ranks.split(lambda mine: self.records(mine, live, step), self.rows)
        version = self.config.rewards.version
        columns = {name: [int(record[name]) for record in records] for name in [*VERDICTS][1:]}
        columns["correct"] = [int(record["correct"][version]) for record in records]
        scored = {f"eval/{VERDICTS[name]}": float(np.mean(columns[name])) for name in VERDICTS}
        scored["eval/seconds"] = time.monotonic() - started
        if ranks.is_main():
            line = {"step": step, **{name: metrics[name] for name in COUNTERS}, **scored}
            line |= {"task": self.questions.task, "split": self.config.evaluation.split}
            with open(self.path, "a") as file:
                file.write(json.dumps(line | columns) + "\n")
        return scored

    def records(self, mine: list[Question], live: LivePolicy, step: int) -> list[Record]:
        """One graded completion of each question, from a seed that training never uses."""
        q, config = self.questions, self.config
        requests = questions.requests(q.task, mine, config.seed, f"step-{step}", repeat=0)
        ((_, groups),) = self.engine.generate([Work(requests, live, EVALUATION)])
        records = questions.records(mine, groups, self.tokenizer, config.sampling.stop)
        scores.grade(records, [config.rewards.version], q.kind)
        return records


def publish(config: EvaluateConfig, run: str) -> Board:
    """Write results/<run>.json and its facts from the evaluations of a run; no model is loaded.

    Each is stored under its step, with or without a checkpoint of that step. Raises UserError: the
    run was never evaluated, the questions changed, or results_dir holds scores of its checkpoints.
    """
    training, folder = training_config(config, run), Path(config.output_dir) / run
    store, version = Store(config.results_dir, run), training.rewards.version
    policies, rows = {}, []
    for line in evaluations(folder / "evaluations.jsonl"):
        task = line["task"]
        records = [
            Record(
                id="", answer="", completion="", tokens=tokens, clipped=bool(clipped),
                well_formed=bool(formed), correct={version: bool(correct)},
            )
            for correct, formed, tokens, clipped in zip(*map(line.get, VERDICTS), strict=True)
        ]  # fmt: skip
        entry, details = scores.summary([records], [version])
        meta = {name.replace("/", "_"): line[name] for name in COUNTERS}
        meta["scores"] = {task: details}
        policies[line["step"]] = results.Checkpoint({task: entry}, meta)
        rows.append(Row(run, f"step {line['step']}", line["train_seconds"], task, details))
    facts = {"from_training": True, "train": training.model_dump()}
    claims = {task: {"split": line["split"], "questions": len(records)}}
    store.claim(claims, facts | results.facts_of(folder / "meta.json"))
    store.write_facts()
    save(results.write, store.summary, policies)
    return Board(rows, [NOTE], [store.summary, store.facts_path], [])


def evaluations(path: Path) -> list[dict[str, Any]]:
    """Every evaluation of a run, all of the same questions, else a UserError."""
    lines = read_metrics(path) if path.is_file() else []
    asked = {f"{len(line['correct'])} of {line['task']}/{line['split']}" for line in lines}
    if not lines:
        remedy = f"train with evaluation.every_seconds=120, or {REMEDY}"
        raise UserError(f"from_training=true: no evaluation in {path}; {remedy}")
    if len(asked) > 1:
        listed = "; ".join(sorted(asked))
        raise UserError(f"{path}: evaluations of different questions ({listed}); {REMEDY}")
    return lines
