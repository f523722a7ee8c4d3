"""Recorded rollouts of one policy with a sketch of each one's gradient, in one file."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pods.config.errors import UserError
from pods.config.keys import TrainConfig, changes
from pods.files import write_atomic

ARRAYS = ("scores", "lengths", "clipped", "logprobs", "sketches")


@dataclass
class Pool:
    """N recorded rollouts of each of Q questions."""

    facts: dict[str, Any]  # what they were made with, and the names and weights of the rewards
    rows: list[dict[str, Any]]  # (Q,) columns of the questions
    # Of each question, by name: scores (N, functions), NaN for None; lengths (N,) in tokens;
    # clipped (N,); logprobs (N,) in nats, mean over tokens, NaN if the engine gives none;
    # sketches (N, size) float32, minus the gradient of the loss at advantage 1.
    arrays: dict[str, list[np.ndarray]]

    def save(self, path: Path) -> None:
        """Write the file, under a temporary name first."""
        content = io.BytesIO()
        texts = {"facts": json.dumps(self.facts), "rows": json.dumps(self.rows, default=str)}
        np.savez(content, **texts, **{name: np.array(own) for name, own in self.arrays.items()})
        write_atomic(path, content.getvalue())


def load(path: Path) -> Pool:
    """The pool in a file. Raises UserError if it is none."""
    try:
        with np.load(path) as file:
            texts = [json.loads(str(file[name])) for name in ("facts", "rows")]
            return Pool(*texts, {name: list(file[name]) for name in ARRAYS})
    except Exception as error:  # of a broken archive, half a dozen types
        raise UserError(f"{path}: no recorded rollouts ({error}); remove it") from None


def stored(path: Path, facts: dict[str, Any]) -> Pool:
    """What an earlier command recorded with the same facts; empty without a file. Raises UserError
    if the file was made with others."""
    if not path.is_file():
        return Pool(facts, [], {name: [] for name in ARRAYS})
    pool = load(path)
    changed = changes(pool.facts, facts)
    if changed:
        raise UserError(
            f"{path} was recorded with another {', '.join(changed.values())}; "
            "remove it to record again"
        )
    return pool


def settings(training: TrainConfig, rollouts: int) -> TrainConfig:
    """The training's config with all rollouts of one prompt as a micro-batch, and without KL term,
    which is no signal."""
    changes = {
        "max_sequences": training.max_sequences
        or training.rollouts_per_prompt * training.prompts_per_step,
        "algorithm": "grpo",
        "algorithm_kwargs": {},
        "advantage": "kept",
        "advantage_kwargs": {},
        "rollouts_per_prompt": rollouts,
        "kept_per_prompt": rollouts,
        "micro_batch_size": rollouts,
        "prompts_per_step": 1,
        "updates_per_generation": 1,
    }
    config = training.model_copy(update=changes, deep=True)
    config.loss.beta = 0.0
    return config
