"""The needs that an algorithm declares by its attributes (pods/algorithms.py)."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

# Arguments of TRL that only its own advantages read: the default, and for other values the name of
# our advantage function with their effect.
OF_TRL_ADVANTAGES = {
    "scale_rewards": ("group", {"none": "dr_grpo"}),
    "multi_objective_aggregation": ("sum_then_normalize", {"normalize_then_sum": "gdpo"}),
}


@dataclass(frozen=True)
class Requirements:
    """The attributes of an algorithm, and whether it takes a rule."""

    samples_m: bool
    keeps_all: bool
    own_advantages: bool
    reads_logprobs: bool
    takes_rule: bool


def requirements_of(algorithm: Callable) -> Requirements:
    """What this algorithm needs; an attribute that it lacks is False."""
    names = [field.name for field in fields(Requirements)]
    attributes = {name: getattr(algorithm, name, False) for name in names}
    attributes["takes_rule"] = "rule" in inspect.signature(algorithm).parameters
    return Requirements(**attributes)


def conflicts(
    requirements: Requirements,
    algorithm: str,
    *,
    n: int,
    m: int,
    m_key: str,
    rule: str | None,
    advantage: str,
    arguments: dict[str, Any],
    prefix: str = "",
) -> Iterator[str]:
    """One line for each value that does not fit an algorithm with these needs.

    m_key: the key of m, kept_per_prompt or num_generations. rule: None if nobody chose one.
    arguments: TRL's, typed with this prefix.
    """
    if rule and not requirements.takes_rule:
        yield f"rule={rule}: algorithm={algorithm} has no rule; leave it out, or set algorithm=pods"
    if m > n and not requirements.samples_m:
        yield f"{m_key}={m}: cannot keep more than rollouts_per_prompt={n}; set {n} or less"
    if m < n and requirements.keeps_all and not requirements.samples_m:
        yield f"rollouts_per_prompt={n}: algorithm={algorithm} trains on all; set {m_key}={n}"
    if requirements.own_advantages and advantage != "kept":
        yield f"advantage={advantage}: algorithm={algorithm} has its own; leave advantage=kept"
    if requirements.keeps_all and advantage == "kept":
        return  # TRL's own advantages read them
    for name, (default, equivalents) in OF_TRL_ADVANTAGES.items():
        value = arguments.get(name, default)
        if isinstance(value, bool):
            value = "group" if value else "none"  # as TRL reads them
        if value != default:
            remedy = "leave it out"
            if value in equivalents and advantage == "kept" and not requirements.own_advantages:
                remedy = f"set advantage={equivalents[value]} in its place"
            yield f"{prefix}{name}={value}: algorithm={algorithm} does not read it; {remedy}"
