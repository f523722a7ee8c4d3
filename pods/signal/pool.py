"""Recorded rollouts of one policy with a sketch of each one's gradient, in one file."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pods.config.errors import UserError
from pods.config.keys import TrainConfig, changes, may_change
from pods.files import write_atomic

ARRAYS = ("scores", "lengths", "clipped", "logprobs", "sketches")


@dataclass
class Pool:
    """N recorded rollouts of each of Q questions."""

    facts: dict[str, Any]  # what they were made with, and the names and weights of the rewards
    rows: list[dict[str, Any]]  # (Q,) columns of the questions
    scores: np.ndarray  # (Q, N, functions), NaN for None
    lengths: np.ndarray  # (Q, N) tokens
    clipped: np.ndarray  # (Q, N) bool
    logprobs: np.ndarray  # (Q, N) nats, mean over the tokens; NaN if the engine gives none
    sketches: np.ndarray  # (Q, N, size) float32: minus the gradient of the loss at advantage 1

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, questions: int, rollouts: int) -> "Pool":
        """The first rollouts of the first questions."""
        arrays = {name: getattr(self, name)[:questions, :rollouts] for name in ARRAYS}
        return Pool(self.facts, self.rows[:questions], **arrays)

    def save(self, path: Path) -> None:
        """Write the file, under a temporary name first."""
        content = io.BytesIO()
        texts = {"facts": json.dumps(self.facts), "rows": json.dumps(self.rows, default=str)}
        np.savez(content, **texts, **{name: getattr(self, name) for name in ARRAYS})
        write_atomic(path, content.getvalue())


def load(path: Path) -> Pool:
    """The pool in a file. Raises UserError if it is none."""
    try:
        with np.load(path) as file:
            texts = [json.loads(str(file[name])) for name in ("facts", "rows")]
            return Pool(*texts, **{name: file[name] for name in ARRAYS})
    except Exception as error:  # of a broken archive, half a dozen types
        raise UserError(
            f"recorded={path}: no recorded rollouts ({error}); name a file that plan.py wrote"
        ) from None


def stored(path: Path, facts: dict[str, Any], shape: tuple[int, ...]) -> Pool:
    """What an earlier command recorded with the same facts; empty without a file. shape: (N,
    functions, size). Raises UserError if the file was made with others."""
    if not path.is_file():
        count, functions, size = shape
        return Pool(
            facts,
            rows=[],
            scores=np.zeros((0, count, functions), np.float32),
            lengths=np.zeros((0, count), np.int64),
            clipped=np.zeros((0, count), bool),
            logprobs=np.zeros((0, count)),
            sketches=np.zeros((0, count, size), np.float32),
        )
    pool = load(path)
    changed = changes(pool.facts, facts)
    refused = [changed[key] for key in changed if not may_change(key.removeprefix("training."))]
    if refused:
        raise UserError(
            f"{path} was recorded with another {', '.join(refused)}; "
            "remove it, or set recorded=<it> to use it as it is"
        )
    return pool


def settings(training: TrainConfig, rollouts: int) -> TrainConfig:
    """The training's config with all rollouts of one prompt as a micro-batch, and without KL term,
    which is no signal."""
    config = training.model_copy(deep=True)
    config.max_sequences = (
        training.max_sequences or training.rollouts_per_prompt * training.prompts_per_step
    )
    config.algorithm, config.algorithm_kwargs = "grpo", {}
    config.advantage, config.advantage_kwargs = "kept", {}
    config.rollouts_per_prompt = config.kept_per_prompt = config.micro_batch_size = rollouts
    config.prompts_per_step = config.updates_per_generation = 1
    config.loss.beta = 0.0
    return config
