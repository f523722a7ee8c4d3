"""When the checkpoints of a published run were made, and which sample a mark of the grid takes.

The published files hold no wall clock: the i-th checkpoint is i grid intervals old. An aborted
attempt or a lost file would shift such a curve in time. Both show in the step increments, which
are nearly equal in a healthy run. Files of this repository hold measured seconds instead.
    uv run scripts/plot.py figure=gsm8k_main
"""

from itertools import combinations

import numpy as np

SHORT, LONG = 0.6, 1.7  # increments outside these multiples of the run's median are suspect
MOST_STALE = 4  # beyond this no subset is trustworthy; the limit also bounds the search


def by_index(steps: list[int], expected: int) -> list[int | None]:
    """Grid mark (1, 2, ...) of each step of a published run, None where the step is left out.

    steps: ascending; expected: checkpoints of a complete run. A run with that count is trusted.
    """
    if len(steps) == expected or not steps:
        return list(range(1, len(steps) + 1))
    stale = _stale(steps) if len(steps) > expected else ()
    if stale is None:
        return [None] * len(steps)
    kept = [i for i in range(len(steps)) if i not in stale]
    marks: list[int | None] = [None] * len(steps)
    mark, jumps = 0, _jumps([steps[i] for i in kept], expected - len(kept))
    for i, jump in zip(kept, jumps, strict=True):
        marks[i] = mark = mark + jump
    return marks


def remarks(steps: list[int], marks: list[int | None], expected: int) -> list[str]:
    """The decisions of `by_index` in words; empty for a regular run."""
    count, notes = f"checkpoints where {expected} are expected", []
    kept = {mark: step for step, mark in zip(steps, marks, strict=True) if mark}
    if steps and not kept:
        fault = "at increments that fit no single attempt; the run is left out"
        return [f"{len(steps)} {count}, {fault}"]
    if dropped := [step for step, mark in zip(steps, marks, strict=True) if not mark]:
        notes.append(f"steps {listed(dropped)} are left from an aborted attempt and are dropped")
    if late := [step for mark, step in kept.items() if mark > 1 and mark - 1 not in kept]:
        notes.append(f"a checkpoint is missing before step {listed(late)}; its mark stays empty")
    if kept and (last := max(kept)) != expected:
        end = "the curve ends early" if last < expected else f"the first {expected} count"
        notes.append(f"{last} {count}; {end}")
    return notes


def nearest(seconds: np.ndarray, grid: np.ndarray, reach: float) -> np.ndarray:
    """Index of the sample nearest to each grid time, (marks,), -1 where none is within `reach` s.

    seconds: (samples,), NaN where unknown. The later end of the reach belongs to the next mark.
    """
    if not np.isfinite(seconds).any():
        return np.full(len(grid), -1)
    offset = seconds[None, :] - grid[:, None]  # (marks, samples)
    offset = np.where((offset >= -reach) & (offset < reach), np.abs(offset), np.inf)
    return np.where(np.isfinite(offset).any(axis=1), offset.argmin(axis=1), -1)


def listed(items: list) -> str:
    return ", ".join(map(str, items[:8])) + (", ..." if len(items) > 8 else "")


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
