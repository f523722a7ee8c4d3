"""The rollouts of one step, as rules and advantage functions see them, and the choice of a rule."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's rollouts: P prompts with n completions each. A flat index is p * n + i."""

    rewards: np.ndarray  # (P, n) total reward: the weighted sum of by_function
    by_function: dict[str, np.ndarray] = field(default_factory=dict)  # name -> (P, n), unweighted
    weights: dict[str, float] = field(default_factory=dict)  # name -> weight; 1 where absent
    lengths: np.ndarray | None = None  # (P, n) tokens
    clipped: np.ndarray | None = None  # (P, n) bool, ended by the length limit
    logprobs: np.ndarray | None = None  # (P, n) nats, mean over tokens, where the engine gives them
    question_ids: np.ndarray | None = None  # (P,)
    step: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(P, n)"""
        return np.shape(self.rewards)


@dataclass(frozen=True, eq=False)
class Selection:
    """The rollouts that are trained on."""

    kept: np.ndarray  # (budget,) distinct flat indices into P x n, ascending
    advantages: np.ndarray | None = None  # (budget,), None: the advantage function computes them
    reasons: Sequence[str] | None = None  # (budget,) why each is kept, for replay and the report
