"""Where each checkpoint of a run stands on a figure's time grid: arrays in, arrays out.

The published files hold no wall clock, the i-th checkpoint stands for i grid intervals. An aborted
attempt or a lost file would shift such a curve in time; both show in the step increments, which are
nearly equal in a healthy run. Our own runs carry measured seconds and need no guess.
Used by `uv run scripts/plot.py` (pods/figures/curves.py).
"""

from itertools import combinations

import numpy as np

SHORT, LONG = 0.6, 1.7  # an increment outside these multiples of the run's median is suspect
MOST_STALE = 4  # more than this and no subset can be trusted; also bounds the search


def by_index(steps: list[int], expected: int) -> tuple[list[int | None], list[str]]:
    """Grid mark (1, 2, ...) of each step, None where it is left out, and what was done in words.

    `steps` ascend; `expected` is the count of a complete run. Only another count raises suspicion.
    """
    marks: list[int | None] = list(range(1, len(steps) + 1))
    if len(steps) == expected or not steps:
        return marks, []
    notes = []
    stale = _stale(steps) if len(steps) > expected else ()
    if stale is None:
        return [None] * len(steps), [
            f"{len(steps)} checkpoints where {expected} are expected, at increments that fit no"
            " single attempt; the run is left out"
        ]
    if stale:
        left = ", ".join(str(steps[i]) for i in stale)
        notes.append(f"steps {left} are left from an aborted attempt and are dropped")
    kept = [i for i in range(len(steps)) if i not in stale]
    jumps = _jumps([steps[i] for i in kept], expected - len(kept))
    if any(jump > 1 for jump in jumps):
        before = ", ".join(str(steps[i]) for i, jump in zip(kept, jumps, strict=True) if jump > 1)
        notes.append(f"a checkpoint is missing before step {before}; its place stays empty")
    marks = [None] * len(steps)
    for i, mark in zip(kept, np.cumsum(jumps), strict=True):
        marks[i] = int(mark)
    last = marks[kept[-1]]
    if last < expected:
        notes.append(f"{last} checkpoints where {expected} are expected; the curve ends early")
    if last > expected:
        notes.append(
            f"{last} checkpoints where {expected} are expected; the first {expected} count"
        )
    return marks, notes


def by_time(seconds: np.ndarray, grid_seconds: float) -> np.ndarray:
    """Grid mark of each measured time, 0 where it is not used: a mark takes the nearest checkpoint
    within half an interval, so that no point moves by more than that."""
    nearest = np.floor(seconds / grid_seconds + 0.5).astype(int)
    distance = np.abs(seconds - nearest * grid_seconds)
    for mark in np.unique(nearest):
        rivals = np.flatnonzero(nearest == mark)
        nearest[np.delete(rivals, np.argmin(distance[rivals]))] = 0
    return nearest


def by_nearest_sample(seconds: np.ndarray, grid: np.ndarray, reach: float) -> np.ndarray:
    """Index of the sample nearest to each grid time, -1 where none lies within `reach` seconds."""
    distance = np.abs(seconds[None, :] - grid[:, None])  # (marks, samples)
    index = distance.argmin(axis=1)
    return np.where(distance.min(axis=1) <= reach, index, -1)


def _stale(steps: list[int]) -> tuple[int, ...] | None:
    """Fewest checkpoints to drop so that no increment is short: the rest is one attempt.

    Among equally few, the set that leaves the most even increments. None where no set does it.
    """
    for count in range(min(MOST_STALE, len(steps) - 2) + 1):
        sets = [
            (_unevenness(np.delete(steps, drop)), drop)
            for drop in combinations(range(len(steps)), count)
        ]
        unevenness, drop = min(sets)
        if np.isfinite(unevenness):
            return drop
    return None


def _unevenness(steps: np.ndarray) -> float:
    """Sum of squared log increments over their median; infinite where one is short."""
    increments = np.diff(steps, prepend=0)
    relative = increments / np.median(increments)
    return float("inf") if relative.min() < SHORT else float(np.sum(np.log(relative) ** 2))


def _jumps(steps: list[int], lacking: int) -> list[int]:
    """Grid intervals from each checkpoint to the next: 1, more where one of the `lacking` was."""
    increments = np.diff(steps, prepend=0)
    relative = increments / np.median(increments)
    jumps = [1] * len(steps)
    for i in np.argsort(-relative):
        if relative[i] <= LONG or lacking <= 0:
            break
        missing = min(max(1, round(relative[i]) - 1), lacking)
        jumps[i] += missing
        lacking -= missing
    return jumps
