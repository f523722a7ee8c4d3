"""Accuracy of the policy while it trains, on the run's own task: metrics under eval/*.

One completion a question drawn as in training, and a greedy one, by the engine of the training;
evaluate_run.py has the whole protocol, with repeats.
    uv run train.py evaluation.every_seconds=20
    uv run evaluate_run.py run=<run> from_training=true    # these scores as results/<run>.json
"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pods import files, ranks
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.engines import EVALUATION, Engine, LivePolicy, Work
from pods.evaluation import questions, scoreboard, scores
from pods.evaluation.config import EvaluateConfig, training_config
from pods.evaluation.scoreboard import Board
from pods.evaluation.targets import Question, Record, Store, save
from pods.runs import results

COUNTERS = ("train_seconds", "tokens/generated", "tokens/trained")
NOTE = "one completion per question; picking the best row overstates accuracy"


class MidRun:
    """(policy, step, its metrics) -> eval/*; appends scores and correct questions to `path`."""

    def __init__(self, config: TrainConfig, engine: Engine, tokenizer: Any, path: Path) -> None:
        self.config, self.engine, self.tokenizer, self.path = config, engine, tokenizer, path
        settings = config.evaluation
        self.questions = questions.load(config.task.name, settings.split, config, tokenizer)
        self.rows = self.questions.rows[: settings.questions]

    def __call__(self, live: LivePolicy, step: int, metrics: dict[str, float]) -> dict[str, float]:
        started = time.monotonic()
        sampled, greedy = (self.score(live, step, greedy) for greedy in (False, True))
        shares = {
            "eval/accuracy": sampled["entry"]["ans_acc"][0],
            "eval/greedy_accuracy": greedy["entry"]["ans_acc"][0],
            "eval/well_formed": sampled["entry"]["for_acc"][0],
            "eval/completion_length_mean": sampled["entry"]["lengths"][0],
            "eval/clipped_ratio": sampled["scores"]["clipped"]["mean"],
            "eval/seconds": time.monotonic() - started,
        }
        if ranks.is_main():
            line = {"step": step, **{name: metrics[name] for name in COUNTERS}, **shares}
            line |= {"task": self.questions.task, "split": self.config.evaluation.split}
            with open(self.path, "a") as file:
                file.write(json.dumps(line | sampled | {"greedy": greedy}) + "\n")
        return shares

    def score(self, live: LivePolicy, step: int, greedy: bool) -> dict[str, Any]:
        """Who was correct, the published entry and our details: of one completion of each question,
        from a seed that training never uses."""
        q, config, version = self.questions, self.config, self.config.rewards.version

        def graded(mine: list[Question]) -> list[Record]:
            requests = questions.requests(q.task, mine, config.seed, f"step-{step}", repeat=0)
            work = Work(requests, live, EVALUATION, greedy=greedy)
            ((_, groups),) = self.engine.generate([work])
            records = questions.records(mine, groups, self.tokenizer, config.sampling.stop)
            scores.grade(records, [version], q.kind)
            return records

        records = ranks.split(graded, self.rows)
        entry, details = scores.summary([records], [version])
        correct = [int(record["correct"][version]) for record in records]
        return {"correct": correct, "entry": asdict(entry), "scores": details}


def publish(config: EvaluateConfig, run: str) -> Board:
    """Write results/<run>.json and its facts from the evaluations of a run; no model is loaded."""
    training, folder = training_config(config, run), Path(config.output_dir) / run
    store, path = Store(config.results_dir, run), folder / "evaluations.jsonl"
    lines = files.read_lines(path)
    problem = "" if lines else "has no evaluation"
    if len({(line["task"], line["split"], line["scores"]["questions"]) for line in lines}) > 1:
        problem = "has evaluations of different questions"
    if problem:
        raise UserError(f"from_training=true: {path} {problem}; score the checkpoints instead")
    content, table = {}, []
    for line in lines:
        parts = {line["task"]: line, line["task"] + results.GREEDY: line["greedy"]}
        meta = {name.replace("/", "_"): line[name] for name in COUNTERS}
        meta["scores"] = {name: part["scores"] for name, part in parts.items()}
        entries = {name: results.Entry(**part["entry"]) for name, part in parts.items()}
        policy, seconds = f"step {line['step']}", line["train_seconds"]
        table += scoreboard.lines(run, policy, seconds, meta["scores"])
        content[line["step"]] = results.Scores(entries, meta)
    facts = {"from_training": True, "train": training.model_dump()}
    claim = {"split": line["split"], "questions": line["scores"]["questions"]}
    store.claim(dict.fromkeys(parts, claim), facts | results.facts_of(folder / "meta.json"))
    store.write_facts()
    save(results.write, store.summary, content)
    return Board(table, [NOTE], [store.summary, store.facts_path], [])
