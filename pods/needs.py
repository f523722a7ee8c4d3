"""What an algorithm says that it needs of a run, by its attributes (pods/algorithms.py)."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """The attributes of an algorithm, and whether it takes a rule."""

    draws_m: bool
    keeps_all: bool
    own_advantages: bool
    reads_logprobs: bool
    takes_rule: bool


def needs_of(algorithm: Callable) -> Needs:
    """What this algorithm needs; an attribute that it lacks is False."""
    return Needs(
        draws_m=getattr(algorithm, "draws_m", False),
        keeps_all=getattr(algorithm, "keeps_all", False),
        own_advantages=getattr(algorithm, "own_advantages", False),
        reads_logprobs=getattr(algorithm, "reads_logprobs", False),
        takes_rule="rule" in inspect.signature(algorithm).parameters,
    )
