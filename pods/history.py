"""What an algorithm may look at of earlier steps: the newest visits of each question.

A checkpoint holds it, so it is bounded: it does not grow with the run.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

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
    """Whether the latest visit was all correct, and how many visits in a row, up to the latest, had
    that outcome without signal; 0 if the latest had signal, or if there is none."""
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
    newest 1,000 steps: earlier steps have no effect."""
    by_step = visits_by_step(history, GRESO_STEPS)
    p = dict.fromkeys(targets, start)
    for number in sorted(by_step)[-GRESO_STEPS:]:
        counts = by_step[number]
        for kind, target in targets.items():
            share = counts[kind] / counts.total()
            step = -change if share >= target else change
            p[kind] = min(max(p[kind] + step, lowest), 1.0)
    return p


def visits_by_step(history: Visits, steps: int) -> dict[int, Counter[bool | None]]:
    """For at least the newest `steps` steps: how many visits were all correct (True), had no signal
    otherwise (False), or had signal (None). Older steps of a long history are not read."""
    newest = max((visits[-1].step for visits in history.values() if visits), default=0)
    span = steps  # several updates on one generation leave gaps between the numbers
    while True:
        by_step: dict[int, Counter[bool | None]] = defaultdict(Counter)
        is_whole = True
        for visits in history.values():
            for visit in reversed(visits):
                if visit.step <= newest - span:
                    is_whole = False
                    break
                kind = None if visit.has_signal else visit.correct == 1
                by_step[visit.step][kind] += 1
        if is_whole or len(by_step) >= steps:
            return by_step
        span *= 2
