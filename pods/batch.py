"""The rollouts of one step, as rules and advantage functions see them, and the choice of a rule."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

EPSILON = 1e-4  # added to the std of rewards, as in the published code and in TRL


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

    def take(self, places: np.ndarray) -> "Batch":
        """The rollouts at flat indices (P', n); a row holds rollouts of one question."""

        def of(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else np.reshape(values, -1)[places]

        return replace(
            self,
            rewards=of(self.rewards),
            by_function={name: of(values) for name, values in self.by_function.items()},
            lengths=of(self.lengths),
            clipped=of(self.clipped),
            logprobs=of(self.logprobs),
            question_ids=self.question_ids[places[:, 0] // self.shape[1]],
        )


def joined(first: Batch, second: Batch) -> Batch:
    """Two rounds of one step as a batch of P1 + P2 prompts."""
    arrays = {
        name: None if a is None or b is None else np.concatenate([a, b])
        for name in ("rewards", "lengths", "clipped", "logprobs", "question_ids")
        for a, b in [(getattr(first, name), getattr(second, name))]
    }
    by_function = {
        name: np.concatenate([values, second.by_function[name]])
        for name, values in first.by_function.items()
    }
    return replace(first, by_function=by_function, **arrays)


@dataclass(frozen=True, eq=False)
class Selection:
    """The rollouts that are trained on."""

    kept: np.ndarray  # (budget,) distinct flat indices into P x n, ascending
    advantages: np.ndarray | None = None  # (budget,), None: the advantage function computes them
    reasons: Sequence[str] | None = None  # (budget,) why each is kept, for replay and the report
