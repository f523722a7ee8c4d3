"""A figure as a table, and as the sentences that its intervals allow; the numbers of speedup.py."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

from pods.figures import statistics
from pods.figures.figure import Series
from pods.figures.speedup import Speedup
from pods.figures.statistics import Difference
from pods.figures.tables import duration, percent

NOTE = (
    "Final accuracy: mean of the last three evaluations. [ ]: Student's 95% interval over runs "
    "(differences: paired by seed, else Welch's)."
)
HEADS = {
    "mean_accuracy_minus_baseline": "mean over time minus baseline, points",
    "level_minus_baseline": "final minus baseline, points",
}
OUTCOMES = {"mean_accuracy": "mean accuracy over {time} of training", "level": "final accuracy"}


@dataclass(frozen=True)
class Outcome:
    """One quantity of a pair of methods, and its p value corrected for all of the table."""

    pair: Speedup
    name: str  # of OUTCOMES
    p: float | None

    @property
    def difference(self) -> Difference:
        return getattr(self.pair, self.name)


def numbers(series: Sequence[Series], pairs: Sequence[Speedup]) -> pandas.DataFrame:
    """A row for each method: final accuracy with Student's interval over runs, and its differences
    from the baseline, the first method. Shares in 0..1, seconds of training; NaN: unknown."""
    rows = []
    for method in series:
        levels = statistics.level(method.of_all_runs("value"))
        mean, _, _ = statistics.mean_and_error(levels[:, None])
        low, high = statistics.band(levels[:, None], 1)
        seeds = [str(seed) for seed in method.seeds if seed is not None]
        row: dict[str, Any] = {
            "method": method.label,
            "runs": len(method.runs),
            "seeds": " ".join(seeds),
            "questions": method.settings.get("scored.questions"),
            "seconds": 3600 * method.hours[method.last],
            "final_accuracy": mean[0],
            "final_accuracy_low": low[0],
            "final_accuracy_high": high[0],
        }
        for pair in pairs:
            if (pair.baseline, pair.pods) == (series[0].label, method.label):
                for name in OUTCOMES:
                    row |= _ends(f"{name}_minus_baseline", getattr(pair, name))
        rows.append(row)
    return pandas.DataFrame(rows)


def _ends(name: str, difference: Difference | None) -> dict[str, float]:
    if difference is None:
        return {}
    low, high = difference.ci95 or (np.nan, np.nan)
    return {name: difference.difference, f"{name}_low": low, f"{name}_high": high}


def readable(table: pandas.DataFrame) -> pandas.DataFrame:
    """The numbers as texts: percent and points with their 95 % intervals."""
    columns = {
        "method": table["method"],
        "runs": table["runs"].astype(str),
        "final accuracy, %": _texts(table, "final_accuracy", ".1f"),
    }
    for name, head in HEADS.items():
        if name in table:
            columns[head] = _texts(table, name, "+.1f")
    return pandas.DataFrame(columns)


def latex(table: pandas.DataFrame, caption: str, label: str) -> str:
    r"""A table of texts in LaTeX; needs \usepackage{booktabs}."""
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", caption)
    text = table.to_latex(index=False, escape=True, caption=escaped, label=label, position="t")
    return "% needs \\usepackage{booktabs}\n" + text


def _texts(table: pandas.DataFrame, name: str, form: str) -> list[str]:
    """80.1 [79.2, 81.0] in percent or points; - for nothing."""
    numbers = table[[name, f"{name}_low", f"{name}_high"]].to_numpy(dtype=float)
    return [
        "-" if np.isnan(value) else percent(value, None if np.isnan(ends[0]) else ends, form)
        for value, *ends in numbers
    ]


def sentences(pairs: Sequence[Speedup], margin: float | None = None) -> list[str]:
    """What may be said of each pair, in mean accuracy over time and in final accuracy.

    pairs: all of a table; p values are corrected for their number (Holm). margin: points within
    which methods count as equal; None: equality is claimed nowhere.
    """
    raw = {
        (number, name): getattr(pair, name).p
        for number, pair in enumerate(pairs)
        for name in OUTCOMES
        if getattr(pair, name) is not None
    }
    adjusted = statistics.holm({key: p for key, p in raw.items() if p is not None})
    outcomes = [Outcome(pairs[key[0]], key[1], adjusted.get(key)) for key in raw]
    return [sentence(outcome, len(adjusted), margin) for outcome in outcomes]


def sentence(outcome: Outcome, comparisons: int, margin: float | None) -> str:
    """One sentence; comparisons: of the family that the p value was corrected for."""
    pair, difference = outcome.pair, outcome.difference
    what = OUTCOMES[outcome.name].format(time=duration(pair.compared_hours))
    if difference.ci95 is None:
        methods = f"{pair.pods} and {pair.baseline}"
        return f"Nothing is known of {methods} in {what}: one run has no interval."
    low, high = (100 * end for end in difference.ci95)
    centre = 100 * difference.difference
    if difference.paired:
        runs = f"{difference.runs[0]} paired seeds"
    else:
        runs = f"{difference.runs[1]} and {difference.runs[0]} runs"
    if comparisons > 1:
        runs += f"; p = {outcome.p:.2g} after Holm's correction for {comparisons} comparisons"
    if outcome.p < statistics.SIGNIFICANT:
        side = "higher" if centre > 0 else "lower"
        evidence = f"95 % {low:.1f} to {high:.1f}, {runs}"
        return (
            f"{pair.pods} has a {side} {what} than {pair.baseline}: by {centre:+.1f} points "
            f"({evidence})."
        )
    evidence = (
        f"{pair.pods} minus {pair.baseline} is {centre:+.1f} points (95 % {low:.1f} to "
        f"{high:.1f}, {runs})"
    )
    if margin is not None and -margin <= low and high <= margin:
        return f"No difference in {what} is larger than {margin:g} points: {evidence}."
    return f"No difference in {what} is established: {evidence}."
