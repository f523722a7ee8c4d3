"""The paper's published runs: when their checkpoints were made, and the wandb export.

Published files hold no wall clock: the i-th checkpoint is i grid intervals old. An aborted attempt
or a lost file would shift the curve; both show in the step increments, equal in a healthy run.
"""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas

from pods.config.errors import UserError

SHORT, LONG = 0.6, 1.7  # increments outside these multiples of the run's median are suspect
MOST_STALE = 4  # beyond this no subset is trustworthy; the limit also bounds the search
# A run's column `data/<run> - <metric>`; wandb adds the copies __MIN and __MAX.
VALUE = re.compile(r"(?:data/)?(?P<run>\S+) - (?!_step).+(?<!__MIN)(?<!__MAX)")


def by_index(steps: list[int], expected: int) -> tuple[list[int | None], list[str]]:
    """Grid mark (1, 2, ...) or None of each ascending step, and the decisions in words."""
    if len(steps) == expected or not steps:
        return list(range(1, len(steps) + 1)), []
    stale = _stale(steps) if len(steps) > expected else ()
    marks: list[int | None] = [None] * len(steps)
    count = f"checkpoints where {expected} are expected"
    if stale is None:
        fault = "at increments that fit no single attempt; the run is left out"
        return marks, [f"{len(steps)} {count}, {fault}"]
    notes, mark, late, own = [], 0, [], [i for i in range(len(steps)) if i not in stale]
    if dropped := [steps[i] for i in stale]:
        notes.append(f"steps {listed(dropped)} are left from an aborted attempt and are dropped")
    jumps = _jumps([steps[i] for i in own], expected - len(own))
    for i, jump in zip(own, jumps, strict=True):
        marks[i] = mark = mark + jump
        late += [steps[i]] * (jump > 1)
    if late:
        notes.append(f"a checkpoint is missing before step {listed(late)}; its mark stays empty")
    if mark != expected:
        end = "the curve ends early" if mark < expected else f"the first {expected} count"
        notes.append(f"{mark} {count}; {end}")
    return marks, notes


def listed(items: list) -> str:
    """The first eight, separated by commas."""
    return ", ".join(map(str, items[:8])) + (", ..." if len(items) > 8 else "")


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """{run: (samples, 3): seconds, optimiser steps, value}, by time, of complete rows; the file has
    `data/<run> - _step` in micro-steps (ga per optimiser step)."""
    try:
        table = pandas.read_csv(path, encoding="utf-8-sig", float_precision="round_trip")
    except ValueError as error:
        raise UserError(f"{path}: not a CSV file ({error}); export the runs again") from None
    table = table.apply(pandas.to_numeric, errors="coerce")
    runs = {match["run"]: name for name in table if (match := VALUE.fullmatch(name))}
    if "eval/time" not in table or not runs:
        text = f"{path}: no column eval/time or no column 'data/<RUN> - <metric>'"
        raise UserError(f"{text}; export the runs from wandb with eval/time as the x axis")
    samples = {}
    for run, name in runs.items():
        ga = int(match[1]) if (match := re.search(r"-ga(\d+)", run)) else 1
        steps = table.get(f"{name.partition(' - ')[0]} - _step", np.nan) / ga
        columns = table[["eval/time"]].assign(steps=steps, value=table[name]).to_numpy()
        known = np.isfinite(columns[:, [0, 2]]).all(axis=1)
        if known.any():
            samples[run] = np.array(sorted(columns[known].tolist()))
    return samples


def _stale(steps: list[int]) -> tuple[int, ...] | None:
    """Fewest checkpoints to drop so that no increment is short, and the rest is most even."""
    for count in range(min(MOST_STALE, len(steps) - 2) + 1):
        unevenness = {}
        for drop in combinations(range(len(steps)), count):
            relative = _relative(np.delete(steps, drop))
            if relative.min() >= SHORT:
                unevenness[drop] = np.sum(np.log(relative) ** 2)
        if unevenness:
            return min(unevenness, key=unevenness.get)
    return None


def _jumps(steps: list[int], lacking: int) -> list[int]:
    """Grid intervals before each checkpoint: 1, or more for some of the `lacking`."""
    relative, jumps = _relative(steps), [1] * len(steps)
    for i in np.argsort(-relative):
        if relative[i] > LONG and lacking > 0:
            missing = min(max(1, round(relative[i]) - 1), lacking)
            jumps[i] += missing
            lacking -= missing
    return jumps


def _relative(steps: np.ndarray | list[int]) -> np.ndarray:
    """The step increments over their median."""
    increments = np.diff(steps, prepend=0)
    return increments / np.median(increments)
