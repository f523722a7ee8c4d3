"""Accuracy of the policy while it trains, on the run's own task: metrics under eval/*.

The published 8-GPU code evaluates every two minutes inside its trainer; so do settings (e) and (f)
here, on a clock of its own (`evaluate`). One sample a question, drawn as in training; the whole
protocol, with repeats, is evaluate_run.py's.
    uv run train.py evaluation.every_seconds=20
    uv run evaluate_run.py run=<run> from_training=true    # these scores as results/<run>.json
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from transformers import set_seed

import rewards
from pods import distributed
from pods.config import TrainConfig
from pods.evaluation import questions


class MidRun:
    """Callable (step, train_seconds) -> metrics; appends them, with every verdict, to `path`."""

    def __init__(self, config: TrainConfig, trainer: Any, path: Path) -> None:
        self.config, self.trainer, self.path = config, trainer, path
        settings = config.evaluation
        self.questions = questions.load(
            config.task.name, settings.split, config, trainer.processing_class
        )
        self.count = min(settings.questions or len(self.questions.ids), len(self.questions.ids))

    def __call__(self, step: int, train_seconds: float) -> dict[str, float]:
        started = time.monotonic()
        # Equal shares, so that all ranks make the same calls: the first questions fill up the last.
        asked = [i % self.count for i in range(self.count + -self.count % distributed.world_size())]
        mine = asked[distributed.share(len(asked))]
        rows = distributed.gather(self.grade(mine, self.generate(mine, step)))[: self.count]
        correct, formed, tokens, clipped = (list(column) for column in zip(*rows, strict=True))
        metrics = {
            "eval/accuracy": float(np.mean(correct)),
            "eval/well_formed": float(np.mean(formed)),
            "eval/completion_length_mean": float(np.mean(tokens)),
            "eval/clipped_ratio": float(np.mean(clipped)),
            "eval/seconds": time.monotonic() - started,
        }
        if distributed.is_main():
            verdicts = {"correct": correct, "well_formed": formed, "clipped": clipped}
            record = {"step": step, "train_seconds": train_seconds, **metrics}
            split = self.config.evaluation.split
            record |= {"task": self.questions.task, "split": split, "tokens": tokens}
            record |= {name: [int(v) for v in values] for name, values in verdicts.items()}
            with open(self.path, "a") as file:
                file.write(json.dumps(record) + "\n")
        return metrics

    def generate(self, mine: list[int], step: int) -> list[list[int]]:
        """One completion of each question, from a seed of its own: training draws as without it."""
        trainer, size = self.trainer, self.config.evaluation.batch_size
        training, count = trainer.model.training, trainer.num_generations_eval
        entropy = [self.config.seed, step, distributed.rank(), 1]
        set_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        trainer.model.eval()
        trainer.num_generations_eval = 1
        completions: list[list[int]] = []
        try:
            for start in range(0, len(mine), size):
                prompts = [self.questions.prompt_ids[i] for i in mine[start : start + size]]
                completions += trainer._generate_single_turn(prompts, None, {})[0]
        finally:
            trainer.model.train(training)
            trainer.num_generations_eval = count
            trainer._last_loaded_step = -1  # a vLLM engine: training pays for its own weights
        return completions

    def grade(
        self, mine: list[int], completions: list[list[int]]
    ) -> list[tuple[float, bool, int, bool]]:
        """(correct, well-formed, tokens, cut) of each completion."""
        tokenizer = self.trainer.processing_class
        texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
        answers = [self.questions.answers[i] for i in mine]
        version, kind = self.config.rewards.version, self.questions.kind
        correct = rewards.score(texts, answers, version, kind)["correctness"]
        stop = {tokenizer.eos_token_id, tokenizer.pad_token_id}
        return [
            (right, rewards.is_well_formed(text), len(ids), not ids or ids[-1] not in stop)
            for right, text, ids in zip(correct, texts, completions, strict=True)
        ]
