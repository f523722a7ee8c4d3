"""What an algorithm may look at of earlier steps: the newest visits of each question.

A checkpoint holds it, so it is bounded: it does not grow with the run.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from pods.batch import Prompt, Visit, Visits

History = dict[str, tuple[Visit, ...]]  # Visits that grow
VISITS = 64  # of a question; the oldest are evicted
QUESTIONS = 100_000  # the oldest are evicted: a streamed data set has no end
GRESO_STEPS = 1000  # whose visits decide its p: more than its 100 moves from lowest to highest


def remember(history: History, visits: Iterable[tuple[Prompt, Visit]]) -> None:
    """Add the visits of a step, and forget those beyond the bounds."""
    for prompt, visit in visits:
        question = str(prompt)
        history[question] = (*history.get(question, ()), visit)[-VISITS:]
    while len(history) > QUESTIONS:
        del history[next(iter(history))]


def streak(history: Visits, prompt: Prompt) -> tuple[bool, int]:
    """Whether the latest visit was all correct, and how many of the latest visits in a row ended
    alike without signal; 0 after a visit with signal, and before the first."""
    newest_first = history.get(prompt, [])[::-1]
    solved = bool(newest_first) and newest_first[0].correct == 1
    count = 0
    for visit in newest_first:
        if visit.has_signal or (visit.correct == 1) != solved:
            break
        count += 1
    return solved, count


def exploration(
    history: Visits,
    start: float,
    change: float,
    lowest: float,
    targets: dict[bool, float],
) -> dict[bool, float]:
    """GRESO's p of the easy (True) and the hard (False) questions, which is `start` before the
    newest 1,000 steps: a change in an earlier one plays no part."""
    by_step: dict[int, list[bool | None]] = defaultdict(list)
    for visits in history.values():
        for visit in visits:
            by_step[visit.step].append(None if visit.has_signal else visit.correct == 1)
    p = dict.fromkeys(targets, start)
    for number in sorted(by_step)[-GRESO_STEPS:]:
        for kind, target in targets.items():
            share = np.mean([solved is kind for solved in by_step[number]])
            step = -change if share >= target else change
            p[kind] = float(np.clip(p[kind] + step, lowest, 1))
    return p
