"""The tables of the board: algorithms against GRPO and PODS, by accuracies (seeds, evaluations)."""

from typing import Any, NamedTuple

import numpy as np
import pandas
from scipy.stats import ttest_rel

from pods.figures import tables
from pods.figures.statistics import Difference, difference

Accuracies = dict[str, np.ndarray]  # arm -> (seeds, evaluations)
EVALUATIONS = 12  # of a training, at equal distances up to the end of the budget
RIVALS = ("grpo", "pods")
METRICS = {"accuracy": "eval/accuracy", "greedy": "eval/greedy_accuracy"}
TITLES = {"accuracy": "Accuracy at temperature 1", "greedy": "Greedy accuracy"}


class Cell(NamedTuple):
    """Sizes of a step, and the learning rate at its start."""

    P: int
    n: int
    m: int
    rate: float


def sentence(arm: str, accuracies: Accuracies) -> str:
    """What the interval of the difference from PODS allows to say."""
    result = ahead(arm, "pods", accuracies)
    low, high = result.ci95 or (0, 0)
    verdict = "cannot be told from pods"
    if low > 0:
        verdict = "ahead of pods"
    if high < 0:
        verdict = "behind pods"
    return f"{arm} - pods, temperature 1: {points(result)}: {verdict}"


def table(cells: dict[str, Cell], accuracies: Accuracies) -> str:
    """A row for each arm, the best first: mean over evaluations and seeds, differences in points,
    and their p values."""
    adjusted = {rival: holm(rival, accuracies) for rival in RIVALS}
    rows = []
    for arm in sorted(cells, key=lambda arm: -accuracies[arm].mean()):
        row = {
            "arm": arm,
            "P, n, m, rate": ", ".join(f"{size:g}" for size in cells[arm]),
            "mean, %": f"{100 * accuracies[arm].mean():.1f}",
        }
        for rival in RIVALS:
            result = ahead(arm, rival, accuracies)
            p = adjusted[rival].get(arm)
            row[f"- {rival}, points"] = points(result)
            row[f"p, {rival}"] = "-" if p is None else f"{p:.2g}"
        rows.append(row)
    return tables.markdown(pandas.DataFrame(rows))


def points(result: Difference) -> str:
    """A difference with its interval; no number without one."""
    return tables.points(result) if result.ci95 else "- (one seed)"


def ahead(arm: str, rival: str, accuracies: Accuracies) -> Difference:
    """Of the accuracies averaged over the evaluations, paired by seed."""
    return difference(accuracies[rival].mean(axis=1), accuracies[arm].mean(axis=1), paired=True)


def holm(rival: str, accuracies: Accuracies) -> dict[str, float]:
    """p values of the arms that differ from the rival, adjusted for their number (Holm 1979):
    of k ascending p values the i-th from 0 becomes the largest of p_j (k - j), j <= i, and 1."""
    averages = {arm: values.mean(axis=1) for arm, values in accuracies.items() if len(values) > 1}
    raw = {
        arm: ttest_rel(average, averages[rival]).pvalue
        for arm, average in averages.items()
        if not np.array_equal(average, averages[rival])
    }
    ascending = pandas.Series(raw, dtype=float).sort_values()
    factors = np.arange(len(ascending), 0, -1)  # k - j
    return (ascending * factors).clip(upper=1).cummax().to_dict()


def against_rivals(arm: str, accuracies: Accuracies) -> dict[str, Any]:
    """Differences in percentage points, with their intervals."""
    percent = {name: 100 * values for name, values in accuracies.items()}
    results = {}
    for rival in RIVALS:
        result = ahead(arm, rival, percent)
        results[rival] = {"difference": result.difference, "ci95": result.ci95}
    return results
