"""Accuracy of the policy while it trains, on the run's own task: metrics under eval/*.

The published 8-GPU code evaluates every two minutes inside its trainer; settings (e) and (f) do
the same here, on a separate clock (`evaluate`). One completion a question, drawn as in training, by
the engine of the training. evaluate_run.py has the whole protocol, with repeats.
    uv run train.py evaluation.every_seconds=20
    uv run evaluate_run.py run=<run> from_training=true    # these scores as results/<run>.json
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import rewards
from pods import ranks
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import EVALUATION, Completion, Engine, LivePolicy, Request, Work, seed_of, texts
from pods.evaluation import questions, scores
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.records import Record, Store, named_disk_errors
from pods.evaluation.scoreboard import Board, Row
from pods.runs import results
from pods.runs.folder import read_metrics

VERDICTS = ("correct", "well_formed", "tokens", "clipped")  # columns of evaluations.jsonl
NOTE = "one completion per question; picking the best row overstates accuracy"
REMEDY = "leave from_training out to score the checkpoints"


class MidRun:
    """(policy, step, train_seconds) -> metrics, which are appended to `path` with every verdict."""

    def __init__(self, config: TrainConfig, engine: Engine, tokenizer: Any, path: Path) -> None:
        self.config, self.engine, self.tokenizer, self.path = config, engine, tokenizer, path
        settings = config.evaluation
        self.questions = questions.load(config.task.name, settings.split, config, tokenizer)
        self.count = min(settings.questions or len(self.questions.ids), len(self.questions.ids))

    def __call__(self, live: LivePolicy, step: int, train_seconds: float) -> dict[str, float]:
        started = time.monotonic()

        def verdicts(mine: list[int]) -> list[tuple]:
            return self.grade(mine, self.generate(mine, live, step))

        rows = ranks.split(verdicts, list(range(self.count)))
        columns = dict(zip(VERDICTS, map(list, zip(*rows, strict=True)), strict=True))
        mean = {name: float(np.mean(column)) for name, column in columns.items()}
        metrics = {
            "eval/accuracy": mean["correct"],
            "eval/well_formed": mean["well_formed"],
            "eval/completion_length_mean": mean["tokens"],
            "eval/clipped_ratio": mean["clipped"],
            "eval/seconds": time.monotonic() - started,
        }
        if ranks.is_main():
            record = {"step": step, "train_seconds": train_seconds, **metrics}
            record |= {"task": self.questions.task, "split": self.config.evaluation.split}
            record |= {name: [int(value) for value in columns[name]] for name in VERDICTS}
            with open(self.path, "a") as file:
                file.write(json.dumps(record) + "\n")
        return metrics

    def generate(self, mine: list[int], live: LivePolicy, step: int) -> list[Completion]:
        """One completion of each question, from a seed that training never uses."""
        q, source = self.questions, (self.config.seed, f"step-{step}", self.questions.task)
        requests = [Request(q.prompt_ids[i], [seed_of(*source, q.ids[i], 0)]) for i in mine]
        ((_, groups),) = self.engine.generate([Work(requests, live, EVALUATION)])
        return [completion for (completion,) in groups]

    def grade(self, mine: list[int], completions: list[Completion]) -> list[tuple]:
        """The VERDICTS of each completion."""
        written = texts(self.tokenizer, completions, self.config.sampling.stop)
        answers = [self.questions.answers[i] for i in mine]
        version, kind = self.config.rewards.version, self.questions.kind
        correct = rewards.score(written, answers, version, kind)["correctness"]
        return [
            (value, rewards.is_well_formed(text), len(c.token_ids), c.clipped)
            for value, text, c in zip(correct, written, completions, strict=True)
        ]


def publish(config: EvaluateConfig) -> Board:
    """Write results/<run>.json and its facts from the evaluations of a run; no model is loaded.

    Each is stored under its step, with or without a checkpoint of that step. Raises UserError: the
    run was never evaluated, a line is incomplete, the questions changed, or results_dir holds
    scores of the run's checkpoints.
    """
    training, folder = training_config(config), Path(config.output_dir) / str(config.run)
    store, version = Store(Path(config.results_dir), str(config.run)), training.rewards.version
    store.refuse_mixture(from_training=True)
    metrics, meta = folder / "metrics.jsonl", folder / "meta.json"
    steps = {line["step"]: line for line in (read_metrics(metrics) if metrics.is_file() else [])}
    policies, rows = {}, []
    for line, records in read(folder / "evaluations.jsonl", version):
        step, seconds, task = line["step"], line["train_seconds"], line["task"]
        details = scores.details([records], [version], pass_at=())
        facts = {"train_seconds": seconds, "scores": {task: details}}
        counts = steps.get(step, {})  # absent where a kill came before the step's metrics
        names = [name for name in ("tokens/generated", "tokens/trained") if name in counts]
        facts |= {name.replace("/", "_"): counts[name] for name in names}
        policies[step] = results.Checkpoint({task: scores.entry([records], version, ())}, facts)
        rows.append(Row(str(config.run), f"step {step}", seconds, task, details))
    store.facts = {"from_training": True, "train": training.model_dump()}
    store.facts |= json.loads(meta.read_text()) if meta.is_file() else {}
    store.facts["tasks"] = {task: {"split": line["split"], "questions": len(records)}}
    store.write_facts()
    with named_disk_errors(store.summary):
        results.write(store.summary, policies)
    return Board(rows, [NOTE], [store.summary, store.facts_path], [])


def read(path: Path, version: str) -> list[tuple[dict[str, Any], list[Record]]]:
    """Every evaluation of a run with its records, all of the same questions, else a UserError."""
    lines = path.read_text().splitlines() if path.is_file() else []
    if not lines:
        raise UserError(
            f"from_training=true: no evaluation in {path}; train with evaluation.every_seconds=120,"
            f" or {REMEDY}"
        )
    evaluations = []
    for number, text in enumerate(lines, start=1):
        try:
            evaluations.append(_parsed(text, version))
        except (ValueError, KeyError, TypeError, IndexError):
            raise UserError(
                f"{path}:{number}: incomplete evaluation; remove the line (resuming removes one "
                f"that a kill cut off), or {REMEDY}"
            ) from None
    asked = {f"{len(rows)} of {line['task']}/{line['split']}" for line, rows in evaluations}
    if len(asked) > 1:
        listed = "; ".join(sorted(asked))
        raise UserError(f"{path}: evaluations of different questions ({listed}); {REMEDY}")
    return evaluations


def _parsed(text: str, version: str) -> tuple[dict[str, Any], list[Record]]:
    """A line with its records, whose completions are empty: training does not keep them."""
    line = json.loads(text)
    records = [
        {"completion": "", "tokens": float(tokens), "truncated": bool(clipped),
         "well_formed": bool(formed), "correct": {version: bool(correct)}}
        for correct, formed, tokens, clipped in zip(*(line[name] for name in VERDICTS), strict=True)
    ]  # fmt: skip
    line["step"], line["train_seconds"], line["task"], line["split"], records[0]  # raise if absent
    return line, records
