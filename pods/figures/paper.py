"""A figure as a table, and as the sentences that its intervals allow; the numbers of speedup.py."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas

from pods.figures import statistics
from pods.figures.figure import Series
from pods.figures.speedup import Speedup
from pods.figures.tables import duration, percent, points

NOTE = (
    "Final accuracy: mean of the last three evaluations, of fewer where a run has fewer. Points: "
    "method minus baseline, in mean accuracy over training time and in final accuracy. [ ]: "
    "Student's 95% interval over runs (differences: paired by seed, else Welch's)."
)
HEADS = {"mean_accuracy": "over time, points", "level": "final, points"}
OUTCOMES = {"mean_accuracy": "mean accuracy over {time} of training", "level": "final accuracy"}


def tables(
    series: Sequence[Series], pairs: Sequence[Speedup], where: str = ""
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """A row for each method, as numbers (shares in 0..1, seconds of training; NaN: unknown) and as
    texts in percent and points: final accuracy with Student's interval over runs, and differences
    from the baseline, the first method. where: the questions with a value of a column, level=3; "":
    all."""
    against_first = {pair.pods: pair for pair in pairs if pair.baseline == series[0].label}
    numbers, texts = [], []
    for method in series:
        levels = statistics.level(method.of_all_runs("value"))[:, None]
        mean = float(np.nanmean(levels))
        low, high = (ends.item() for ends in statistics.band(levels, 1))
        row: dict[str, Any] = {
            "method": method.label,
            "where": where,
            "runs": len(method.runs),
            "seeds": " ".join(str(seed) for seed in method.seeds if seed is not None),
            "questions": method.settings.get("scored.questions"),
            "seconds": 3600 * method.hours[method.last],
            "final_accuracy": mean,
            "final_accuracy_low": low,
            "final_accuracy_high": high,
        }
        text = {"method": method.label, "questions": f"{where} {row['questions'] or ''}".strip()}
        text["runs"] = str(len(method.runs))
        text["final accuracy, %"] = percent(mean, (low, high) if np.isfinite(low) else None)
        pair = against_first.get(method.label)
        for name, head in HEADS.items() if pair else ():
            difference = getattr(pair, name)
            text[head] = points(difference)
            if difference:
                column = f"{name}_minus_baseline"
                low, high = difference.ci95 or (np.nan, np.nan)
                row |= {column: difference.difference, f"{column}_low": low, f"{column}_high": high}
        numbers.append(row)
        texts.append(text)
    return pandas.DataFrame(numbers), pandas.DataFrame(texts)


def latex(table: pandas.DataFrame, caption: str, label: str) -> str:
    r"""A table of texts in LaTeX; needs \usepackage{booktabs}."""
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", caption)
    text = table.to_latex(index=False, escape=True, caption=escaped, label=label, position="t")
    text = re.sub(r"(?<=[ \[])-(?=\d)", "$-$", text)  # a minus, no hyphen
    begin = r"\begin{tabular}"
    text = text.replace(begin, rf"\footnotesize\setlength{{\tabcolsep}}{{3pt}}{begin}")
    return "% needs \\usepackage{booktabs}\n" + text


def sentences(pairs: Sequence[Speedup], margin: float | None = None) -> list[str]:
    """What may be said of each pair, in mean accuracy over time and in final accuracy.

    pairs: all of a table; p values are corrected for their number (Holm). margin: points within
    which methods count as equal; None: equality is claimed nowhere.
    """
    compared = [
        (pair, name, getattr(pair, name))
        for pair in pairs
        for name in OUTCOMES
        if getattr(pair, name) is not None
    ]
    p_values = {i: difference.p for i, (_, _, difference) in enumerate(compared)}
    adjusted = statistics.holm({i: p for i, p in p_values.items() if p is not None})
    texts = []
    for i, (pair, name, difference) in enumerate(compared):
        what = OUTCOMES[name].format(time=duration(pair.compared_hours))
        what += f" on questions with {pair.where}" if pair.where else ""
        if difference.ci95 is None:
            methods = f"{pair.pods} and {pair.baseline}"
            texts.append(f"Nothing is known of {methods} in {what}: one run has no interval.")
            continue
        low, high = (100 * end for end in difference.ci95)
        verdict = f"No difference in {what} is established"
        if adjusted[i] < statistics.SIGNIFICANT:
            side = "higher" if difference.difference > 0 else "lower"
            verdict = f"{pair.pods} has a {side} {what} than {pair.baseline}"
        elif margin is not None and -margin <= low and high <= margin:
            verdict = f"No difference in {what} is larger than {margin:g} points"
        kind, runs = "Welch's", f"{difference.runs[1]} and {difference.runs[0]} runs"
        if difference.paired:
            kind, runs = "Student's", f"{difference.runs[0]} paired seeds"
        if len(adjusted) > 1:
            runs += (
                f"; p = {adjusted[i]:.2g} after Holm's correction for {len(adjusted)} comparisons"
            )
        texts.append(
            f"{verdict}: {pair.pods} minus {pair.baseline} is "
            f"{100 * difference.difference:+.1f} points ({kind} 95 % interval "
            f"{low:.1f} to {high:.1f}, {runs})."
        )
    return texts
