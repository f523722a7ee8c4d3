"""One step: what an algorithm sees of it, its rollouts as a flat batch, and what is selected."""

from __future__ import annotations  # else np.random is imported for a type

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]  # columns of the data set
MOST_ROUNDS = 16  # of generation in one step
NO_FRESH = (
    "a streamed data set has no fresh prompts, nor has a subclass with its own sampler or loader; "
    "load a datasets.Dataset, and leave TRL's order"
)


def mean(values: Sequence[float | None] | np.ndarray) -> float:
    """Mean of the values that are not NaN; NaN if there are none."""
    values = np.asarray(values, dtype=np.float64)
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if len(scored) else float("nan")


def read_only(values: Any) -> np.ndarray:
    """A read-only view, so that a user's function changes nothing: metrics, rollout log and history
    are made of it afterwards."""
    return np.broadcast_to(values, np.shape(values))  # numpy: a read-only view


class Prompt(str):
    """A prompt of the step: as a text its question's id, the key of the history."""

    row: Row

    def __new__(cls, question: object, row: Row) -> Prompt:
        prompt = super().__new__(cls, question)
        prompt.row = row
        return prompt


def prompt_of(row: Row, number: int) -> Prompt:
    """The prompt of a row, named by the column `id`, else by its number."""
    name = row.get("id")
    if name is None:
        name = number
    return Prompt(name, row)


class AlgorithmError(RuntimeError):
    """An algorithm or an advantage function raised, or returned what cannot be trained on."""


class Visit(NamedTuple):
    """The rollouts of a question in one step."""

    step: int  # optimiser steps done before it
    reward: float  # mean over the rollouts that a function gave a number
    correct: float | None  # share in 0..1; None where nothing grades
    has_signal: bool  # neither all correct nor all wrong; where nothing grades: rewards differ


Visits = Mapping[str, Sequence[Visit]]  # question -> its visits, the oldest first


@dataclass(frozen=True, eq=False)
class Step:
    """What an algorithm sees of the step (pods/algorithms.py)."""

    number: int
    P: int
    n: int
    m: int
    prompts: list[Prompt]
    fresh: Callable[[int], list[Prompt]]
    history: Visits  # read-only
    rng: np.random.Generator

    @cached_property
    def budget(self) -> int:
        """The most rows that the step trains on, P m."""
        return self.P * self.m


@dataclass(frozen=True)
class Completion:
    """Token ids, with the end token if it ended so."""

    token_ids: list[int]
    clipped: bool  # ended by the length limit
    logprobs: list[float] | None = None  # nats, of each token under the sampling temperature


@dataclass(frozen=True)
class Rollout:
    """A completion and the prompt that it continues."""

    prompt_ids: list[int]
    completion: Completion
    text: str | list[dict[str, str]]  # as reward functions see it; or the messages of a chat


@dataclass(frozen=True, eq=False)
class Batch:
    """Every rollout of the step so far, in the order in which they were asked for: R of them.
    Its arrays are read-only."""

    prompt: np.ndarray  # (R,) int: number of the prompt, in order of first appearance in the step
    rewards: np.ndarray  # (R,) weighted sum of by_function; NaN if no function gave a number
    correct: np.ndarray | None = None  # (R,) bool, by the task's grader; None: nothing grades
    by_function: Mapping[str, np.ndarray] = field(default_factory=dict)  # name -> (R,), unweighted
    lengths: np.ndarray | None = None  # (R,) tokens
    clipped: np.ndarray | None = None  # (R,) bool, ended by the length limit
    logprobs: np.ndarray | None = None  # (R,) nats, mean over the tokens of a rollout
    weights: dict[str, float] = field(default_factory=dict)  # name -> weight; 1 if absent

    def __post_init__(self) -> None:
        for name in ("prompt", "rewards", "correct", "lengths", "clipped", "logprobs"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read_only(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.prompt)

    @cached_property
    def groups(self) -> list[np.ndarray]:
        """For each prompt the ascending indices of its rollouts."""
        return [read_only(np.flatnonzero(self.prompt == p)) for p in range(np.max(self.prompt) + 1)]

    @cached_property
    def with_signal(self) -> np.ndarray:
        """Numbers of the prompts that are neither all correct nor all wrong; if nothing grades,
        of those whose rewards differ. Ascending."""
        values = np.asarray(self.rewards if self.correct is None else self.correct, dtype=float)
        scored = [values[group][~np.isnan(values[group])] for group in self.groups]
        return np.flatnonzero([len(np.unique(group)) > 1 for group in scored])

    def of(self, prompts: Sequence[int]) -> np.ndarray:
        """Ascending indices of the rollouts of these prompts."""
        return np.flatnonzero(np.isin(self.prompt, prompts))


@dataclass(frozen=True, eq=False)
class Selection:
    """The rollouts that a step trains on: at most its budget."""

    kept: np.ndarray  # (K,) distinct indices into the R rollouts
    advantages: np.ndarray | None = None  # (K,); None: the config's advantage function gives them


SampleRequest = tuple[list[Prompt], int | Sequence[int]]  # prompts, with one count or one for each
Algorithm = Callable[..., Generator[SampleRequest, Batch, Sequence[int] | Selection]]


@dataclass(frozen=True, eq=False)
class Record:
    """A finished step: R rollouts of G prompts, and those that are trained on."""

    step: Step
    prompts: list[Prompt]  # (G,) in the order of first appearance
    rollouts: list[Rollout]  # (R,)
    batch: Batch
    selection: Selection  # ascending, with advantages; by prompt where TRL's own stand
    rounds: int  # of generation
    extras: Sequence[dict[str, Any]] = ()  # column -> value of log_extra, of each rollout

    def visits(self) -> Iterator[tuple[Prompt, Visit]]:
        """What the history keeps of each prompt."""
        batch = self.batch
        for p, group in enumerate(batch.groups):
            correct = None
            if batch.correct is not None:
                correct = mean(batch.correct[group])
            visit = Visit(
                self.step.number, mean(batch.rewards[group]), correct, p in batch.with_signal
            )
            yield self.prompts[p], visit
