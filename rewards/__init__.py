"""Rewards of training and grades of evaluation, from one definition.

Versions: v1 (the release, Qwen) and v2 (the later head, Llama) are the published ones to the bit,
v1-correctness is the release on MATH, strict is ours. Kinds of answers: math, choice.
Completions are untrusted: every step has bounded work except math-verify (strict only), which runs
in a child process that is killed at a deadline.
"""

import atexit
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from rewards.scorer import KINDS, NAMES, VERSIONS, Scorer
from rewards.tags import is_well_formed

__all__ = ["KINDS", "NAMES", "VERSIONS", "Scorer", "grade", "is_well_formed", "score"]


def grade(completion: str, answer: str, version: str = "v2", kind: str = "math") -> bool:
    """Whether the completion is correct."""
    return _scorer(version).grade([completion], [answer], [kind])[0]


def score(
    completions: Sequence[str], answers: Sequence[str], version: str = "v2", kind: str = "math"
) -> dict[str, list[float]]:
    """correctness, format and tags of every completion, unweighted; the trainer adds them up."""
    return _scorer(version).score(completions, answers, [kind] * len(completions))


@cache
def _scorer(version: str) -> Scorer:
    """One scorer per version for the two functions above, with the deadline of config/rewards."""
    defaults = Path(__file__).resolve().parents[1] / "config" / "rewards" / "_shared.yaml"
    seconds = yaml.safe_load(defaults.read_text())["deadline_seconds"]
    scorer = Scorer(version, workers=min(4, os.cpu_count() or 1), deadline_seconds=seconds)
    atexit.register(scorer.close)
    return scorer


os.register_at_fork(after_in_child=_scorer.cache_clear)  # two processes must not share its pipes
