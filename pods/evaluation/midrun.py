"""Accuracy of the policy while it trains, on the run's own task: metrics under eval/*.

The published 8-GPU code evaluates every two minutes inside its trainer; settings (e) and (f) do
the same here, on a separate clock (`evaluate`). One completion a question, drawn as in training, by
the engine of the training; the whole protocol, with repeats, is evaluate_run.py's.
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
from pods.config.keys import TrainConfig
from pods.engines import EVALUATION, Completion, Engine, Live, Request, Work, seed_of, texts
from pods.evaluation import questions

VERDICTS = ("correct", "well_formed", "tokens", "clipped")  # columns of evaluations.jsonl


class MidRun:
    """(policy, step, train_seconds) -> metrics, which are appended to `path` with every verdict."""

    def __init__(self, config: TrainConfig, engine: Engine, tokenizer: Any, path: Path) -> None:
        self.config, self.engine, self.tokenizer, self.path = config, engine, tokenizer, path
        settings = config.evaluation
        self.questions = questions.load(config.task.name, settings.split, config, tokenizer)
        self.count = min(settings.questions or len(self.questions.ids), len(self.questions.ids))

    def __call__(self, live: Live, step: int, train_seconds: float) -> dict[str, float]:
        started = time.monotonic()
        # Equal shares, so that all ranks make the same calls: the first questions fill up the last.
        asked = [i % self.count for i in range(self.count + -self.count % ranks.world_size())]
        mine = asked[ranks.share(len(asked))]
        done = self.generate(mine, live, step)
        rows = ranks.gather(self.grade(mine, done))[: self.count]
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

    def generate(self, mine: list[int], live: Live, step: int) -> list[Completion]:
        """One completion of each question, from a seed that training never uses."""
        q, source = self.questions, (self.config.seed, f"step-{step}", self.questions.task)
        requests = [Request(q.prompt_ids[i], [seed_of(*source, q.ids[i], 0)]) for i in mine]
        ((_, groups),) = self.engine.generate([Work(requests, live, EVALUATION)])
        return [completion for (completion,) in groups]

    def grade(self, mine: list[int], completions: list[Completion]) -> list[tuple]:
        """The VERDICTS of each completion."""
        said = texts(self.tokenizer, completions, self.config.sampling.stop)
        answers = [self.questions.answers[i] for i in mine]
        version, kind = self.config.rewards.version, self.questions.kind
        correct = rewards.score(said, answers, version, kind)["correctness"]
        return [
            (right, rewards.is_well_formed(text), len(c.token_ids), c.clipped)
            for right, text, c in zip(correct, said, completions, strict=True)
        ]
