"""What an algorithm says that it needs of a run, by its attributes (pods/algorithms.py)."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields


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
    attributes = {field.name: getattr(algorithm, field.name, False) for field in fields(Needs)}
    attributes["takes_rule"] = "rule" in inspect.signature(algorithm).parameters
    return Needs(**attributes)


def misfits(
    needs: Needs,
    algorithm: str,
    *,
    n: int,
    m: int,
    m_key: str,
    rule: str | None,
    advantage: str,
) -> Iterator[str]:
    """One line for each value that does not fit an algorithm with these needs.

    algorithm: as the messages name it. m_key: the key of m, kept_per_prompt or num_generations.
    rule: None if nobody chose one.
    """
    if rule and not needs.takes_rule:
        yield f"rule={rule}: {algorithm} has no rule; leave it out, or set algorithm=pods"
    if m > n and not needs.draws_m:
        yield f"{m_key}={m}: cannot keep more than rollouts_per_prompt={n}; set {n} or less"
    if m < n and needs.keeps_all and not needs.draws_m:
        yield f"rollouts_per_prompt={n}: {algorithm} trains on all; set {m_key}={n}"
    if needs.own_advantages and advantage != "kept":
        yield f"advantage={advantage}: {algorithm} has its own; leave advantage=kept"
