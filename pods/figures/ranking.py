"""The tables of the board: arms against GRPO and PODS. Accuracies are (seeds, marks)."""

from collections import defaultdict
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas
from scipy.stats import ttest_rel

from pods.figures import tables
from pods.figures.statistics import (
    Difference,
    TimeToTarget,
    difference,
    level,
    time_to_target,
)

Marks = dict[str, np.ndarray]  # arm -> (seeds, marks)
MARKS = 12  # evaluations of a training, at equal distances up to the end of the budget
RIVALS = ("grpo", "pods")
METRICS = {"accuracy": "eval/accuracy", "greedy": "eval/greedy_accuracy"}
TITLES = {
    "accuracy": "Accuracy at temperature 1",
    "greedy": "Greedy accuracy",
    "both": "Right and well formed, at temperature 1",  # of the newer lines
}
SHOWN = 3  # arms of the picture beside GRPO and PODS


class Cell(NamedTuple):
    """Sizes of a step, and the learning rate at its start."""

    P: int
    n: int
    m: int
    rate: float


def over_worlds(worlds: dict[str, dict[str, Marks]]) -> dict[str, Marks]:
    """The mean over the worlds of every arm, seed and mark, by metric."""
    mean: dict[str, Marks] = defaultdict(dict)
    first = next(iter(worlds.values()))
    for metric, arm in product(METRICS, first["accuracy"]):
        mean[metric][arm] = np.mean([marks[metric][arm] for marks in worlds.values()], axis=0)
    return mean


def sentence(arm: str, marks: dict[str, Marks]) -> str:
    """What the interval of the difference from PODS at temperature 1 allows to say."""
    result = ahead(arm, "pods", marks["accuracy"])
    if result.ci95 is None:
        verdict = "one seed says nothing about other seeds"
    elif result.ci95[0] > 0:
        verdict = "ahead of pods"
    elif result.ci95[1] < 0:
        verdict = "behind pods"
    else:
        verdict = "cannot be told from pods"
    return f"{arm} - pods, temperature 1: {tables.points(result)}: {verdict}"


def text(cells: dict[str, Cell], marks: dict[str, Marks]) -> str:
    """A Markdown table for each metric."""
    return "\n\n".join(f"{TITLES[name]}\n\n{table(cells, marks[name])}" for name in METRICS)


def table(cells: dict[str, Cell], marks: Marks) -> str:
    """A row for each arm, the best first: mean over marks and seeds, level, and differences; and
    how many of an arm's runs never reach the level that the times are compared at."""
    adjusted = {rival: holm(rival, marks) for rival in RIVALS}
    rows = []
    short = []
    for arm in sorted(cells, key=lambda arm: -marks[arm].mean()):
        cell = cells[arm]
        row = {
            "arm": arm,
            "P, n, m, rate": f"{cell.P}, {cell.n}, {cell.m}, {cell.rate:g}",
            "mean, %": f"{100 * marks[arm].mean():.1f}",
            "end, %": f"{100 * level(marks[arm]).mean():.1f}",
        }
        for rival in RIVALS:
            p = adjusted[rival].get(arm)
            row[f"- {rival}, points"] = tables.points(ahead(arm, rival, marks))
            row[f"p, {rival}"] = "-" if p is None else f"{p:.2g}"
        times = "-"
        goal = reached(arm, marks)
        if goal and arm != "grpo":
            times = tables.times(goal.ratio, goal.ci95, "a bound")
        if goal and goal.censored[1]:
            short.append(f"{arm} {goal.censored[1]}")
        rows.append(row | {"times as fast as grpo": times})
    text = tables.markdown(pandas.DataFrame(rows))
    return f"{text}\n\nRuns that never reach 99 % of GRPO's level: {', '.join(short) or 'none'}."


def ahead(arm: str, rival: str, marks: Marks) -> Difference:
    """Of the accuracies averaged over the marks, paired by seed."""
    return difference(marks[rival].mean(axis=1), marks[arm].mean(axis=1), paired=True)


def reached(arm: str, marks: Marks) -> TimeToTarget | None:
    """Time to 99 % of GRPO's level: GRPO's over the arm's; the distance of two marks is 1."""
    times = np.arange(1.0, MARKS + 1)
    arms = [(np.tile(times, (len(runs), 1)), runs) for runs in (marks["grpo"], marks[arm])]
    no_base = [np.nan, np.nan]
    return time_to_target(arms, no_base, level(marks["grpo"]), MARKS)


def holm(rival: str, marks: Marks) -> dict[str, float]:
    """p values of the arms that differ from the rival, adjusted for their number (Holm 1979):
    of k ascending p values the i-th from 0 becomes the largest of p_j (k - j), j <= i, and 1."""
    averages = {arm: values.mean(axis=1) for arm, values in marks.items() if len(values) > 1}
    raw = {
        arm: ttest_rel(average, averages[rival]).pvalue
        for arm, average in averages.items()
        if not np.array_equal(average, averages[rival])
    }
    ascending = pandas.Series(raw, dtype=float).sort_values()
    factors = np.arange(len(ascending), 0, -1)  # k - j
    return (ascending * factors).clip(upper=1).cummax().to_dict()


def against_rivals(arm: str, marks: Marks) -> dict[str, Any]:
    """Differences in percentage points, with their intervals."""
    percent = {name: 100 * values for name, values in marks.items()}
    results = {}
    for rival in RIVALS:
        result = ahead(arm, rival, percent)
        results[rival] = {"difference": result.difference, "ci95": result.ci95}
    return results


def shown(marks: dict[str, Marks], name: str) -> Marks:
    """The arms of the picture: the first ones by accuracy at temperature 1, and both rivals."""
    order = sorted(marks["accuracy"], key=lambda arm: -marks["accuracy"][arm].mean())
    arms = [arm for place, arm in enumerate(order) if arm in RIVALS or place < SHOWN]
    return {arm: marks[name][arm] for arm in arms}
