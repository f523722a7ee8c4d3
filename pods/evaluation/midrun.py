"""Accuracy of the policy while it trains, on the run's own task: metrics under eval/*.

One completion a question sampled as in training, and a greedy one, by the engine of the training;
evaluate_run.py has the whole protocol, with repeats.
    uv run train.py evaluation.every_seconds=20
"""

import time
from pathlib import Path
from typing import Any

from pods import files, ranks
from pods.batch import Row
from pods.config.keys import TrainConfig
from pods.engines import Engine, LivePolicy, Work
from pods.evaluation import questions, scores
from pods.evaluation.records import GradedCompletion
from pods.metrics import Metrics

COUNTERS = ("train_seconds", "tokens/generated", "tokens/trained")


class MidRun:
    """(policy, step, its metrics) -> eval/*; appends scores and correct questions to `path`."""

    def __init__(self, config: TrainConfig, engine: Engine, tokenizer: Any, path: Path) -> None:
        self.config = config
        self.engine = engine
        self.tokenizer = tokenizer
        self.path = path
        split = config.evaluation.split
        self.questions = questions.load(config.task.name, split, config, tokenizer)

    def __call__(self, live: LivePolicy, step: int, metrics: Metrics) -> Metrics:
        started = time.monotonic()
        sampled = self.score(live, step, greedy=False)
        greedy = self.score(live, step, greedy=True)
        shares = {
            "eval/accuracy": sampled["entry"]["ans_acc"][0],
            "eval/greedy_accuracy": greedy["entry"]["ans_acc"][0],
            "eval/well_formed": sampled["entry"]["for_acc"][0],
            "eval/completion_length_mean": sampled["entry"]["lengths"][0],
            "eval/clipped_ratio": sampled["scores"]["clipped"]["mean"],
            "eval/seconds": time.monotonic() - started,
        }
        if ranks.is_main():
            line = {
                "step": step,
                **{name: metrics[name] for name in COUNTERS},
                **shares,
                "task": self.questions.task,
                "split": self.config.evaluation.split,
                **sampled,
                "greedy": greedy,
            }
            files.append(self.path, line)
        return shares

    def score(self, live: LivePolicy, step: int, greedy: bool) -> dict[str, Any]:
        """The verdict of each question, and the summary. One completion a question, with a seed
        that no training step uses."""
        q = self.questions
        config = self.config
        version = config.rewards.version

        def graded(mine: list[Row]) -> list[GradedCompletion]:
            requests = questions.requests(q.task, mine, config.seed, f"step-{step}", repeat=0)
            work = Work(requests, live, evaluation=True, greedy=greedy)
            ((_, groups),) = self.engine.generate([work])
            records = questions.records(mine, groups, self.tokenizer, config.sampling.stop)
            scores.grade(records, [version], q.kind)
            return records

        records = ranks.split(graded, q.rows[: config.evaluation.questions])
        entry, details = scores.summary([records], [version])
        correct = [int(record["correct"][version]) for record in records]
        return {"correct": correct, "entry": entry.model_dump(), "scores": details}
