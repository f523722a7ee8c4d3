"""The tables of the board: algorithms against GRPO and PODS, by accuracies (seeds, evaluations)."""

from typing import Any, NamedTuple

import numpy as np
import pandas

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


def sentence(arm: str, accuracies: Accuracies, p: float | None) -> str:
    """What the difference from PODS and its adjusted p value allow to say."""
    result = ahead(arm, "pods", accuracies)
    verdict = "cannot be told from pods"
    if p is not None and p < 0.05:
        verdict = "ahead of pods" if result.difference > 0 else "behind pods"
    return f"{arm} - pods, temperature 1: {points(result)}: {verdict}"


def table(
    cells: dict[str, Cell], accuracies: Accuracies, adjusted: dict[tuple[str, str], float]
) -> str:
    """A row for each arm, the best first: mean over evaluations and seeds, differences in points,
    and their adjusted p values, by (arm, rival)."""
    rows = []
    for arm in sorted(cells, key=lambda arm: -accuracies[arm].mean()):
        row = {
            "arm": arm,
            "P, n, m, rate": ", ".join(f"{size:g}" for size in cells[arm]),
            "mean, %": f"{100 * accuracies[arm].mean():.1f}",
        }
        for rival in RIVALS:
            result = ahead(arm, rival, accuracies)
            p = adjusted.get((arm, rival))
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


def p_value(averages: np.ndarray, rivals: np.ndarray) -> float | None:
    """Of no difference, paired by seed (Student); None for one seed or for equal averages."""
    if np.array_equal(averages, rivals):
        return None
    return difference(rivals, averages, paired=True).p


def against_rivals(arm: str, accuracies: Accuracies) -> dict[str, Any]:
    """Differences in percentage points, with their intervals."""
    percent = {name: 100 * values for name, values in accuracies.items()}
    results = {}
    for rival in RIVALS:
        result = ahead(arm, rival, percent)
        results[rival] = {"difference": result.difference, "ci95": result.ci95}
    return results
