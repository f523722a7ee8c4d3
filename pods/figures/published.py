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
from pods.runs.results import run_order

SHORT, LONG = 0.6, 1.7  # increments outside these multiples of the run's median are suspect
MOST_STALE = 4  # beyond this no subset is trustworthy; the limit also bounds the search
# A run's column `data/<run> - <metric>`; wandb adds the copies __MIN and __MAX.
VALUE = re.compile(r"(?:data/)?(?P<run>\S+) - (?!_step).+(?<!__MIN)(?<!__MAX)")


def by_index(steps: list[int], expected: int) -> list[int | None]:
    """Grid mark (1, 2, ...) of each step of a published run, None where the step is left out.

    steps: ascending; expected: checkpoints of a complete run. A run with that count is trusted.
    """
    if len(steps) == expected or not steps:
        return list(range(1, len(steps) + 1))
    stale = _stale(steps) if len(steps) > expected else ()
    if stale is None:
        return [None] * len(steps)
    own = [i for i in range(len(steps)) if i not in stale]
    marks: list[int | None] = [None] * len(steps)
    mark, jumps = 0, _jumps([steps[i] for i in own], expected - len(own))
    for i, jump in zip(own, jumps, strict=True):
        marks[i] = mark = mark + jump
    return marks


def remarks(steps: list[int], marks: list[int | None], expected: int) -> list[str]:
    """The decisions of `by_index` in words; empty for a regular run."""
    count, notes = f"checkpoints where {expected} are expected", []
    by_mark = {mark: step for step, mark in zip(steps, marks, strict=True) if mark}
    last = max(by_mark, default=0)
    if steps and not last:
        fault = "at increments that fit no single attempt; the run is left out"
        return [f"{len(steps)} {count}, {fault}"]
    if stale := [step for step in steps if step not in by_mark.values()]:
        notes.append(f"steps {listed(stale)} are left from an aborted attempt and are dropped")
    if late := [step for mark, step in by_mark.items() if mark > 1 and mark - 1 not in by_mark]:
        notes.append(f"a checkpoint is missing before step {listed(late)}; its mark stays empty")
    if last not in (0, expected):
        end = "the curve ends early" if last < expected else f"the first {expected} count"
        notes.append(f"{last} {count}; {end}")
    return notes


def listed(items: list) -> str:
    """The first eight, separated by commas."""
    return ", ".join(map(str, items[:8])) + (", ..." if len(items) > 8 else "")


def export(
    accuracy: Path, length: Path
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], list[str]]:
    """{run: samples of accuracy, of length} of the runs that both files hold, Run10 after Run9;
    and every irregularity in words."""
    (accuracies, lengths), notes = map(read_csv, (accuracy, length)), []
    for name in sorted(accuracies.keys() ^ lengths.keys(), key=run_order):
        only = accuracy.name if name in accuracies else length.name
        notes.append(f"{name}: only in {only}; the run is left out")
    both = sorted(accuracies.keys() & lengths.keys(), key=run_order)
    return {name: (accuracies[name], lengths[name]) for name in both}, notes


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """{run: (samples, 3): seconds, optimiser steps, value}, by time; incomplete rows do not count.

    A row holds the sample of one run: `eval/time` in seconds, `data/<run> - _step` in micro-steps
    (ga per optimiser step).
    """
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
    """Fewest checkpoints to drop so that no increment is short: the rest is one attempt.

    Among equally few, the set that leaves the most even increments; None where no set does.
    """
    for count in range(min(MOST_STALE, len(steps) - 2) + 1):
        drops = combinations(range(len(steps)), count)
        unevenness, drop = min((_unevenness(np.delete(steps, drop)), drop) for drop in drops)
        if np.isfinite(unevenness):
            return drop
    return None


def _unevenness(steps: np.ndarray) -> float:
    """Sum of squared log increments over their median; infinite where one is short."""
    relative = _relative(steps)
    return float("inf") if relative.min() < SHORT else float(np.sum(np.log(relative) ** 2))


def _jumps(steps: list[int], lacking: int) -> list[int]:
    """Grid intervals before each checkpoint: 1, or more where some of the `lacking` were."""
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
