"""Comparisons of arms as tables: for the console, Markdown, LaTeX and the report.

Used by `uv run scripts/speedup.py` and `uv run scripts/report.py`.
"""

from pods.figures.speedup import Speedup, published_interval
from pods.figures.statistics import Difference

Row = dict[str, str]
LATEX = {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#"}
OURS_NOTE = (
    "Points are arm minus baseline. [ ]: 95% interval over runs (Student; paired: by seed). Level:"
    " mean of the last three marks. Times as fast: ratio of geometric mean times to the target."
    " Capped: a run short of the target counts with the whole time."
)
PUBLISHED_NOTE = (
    "First mark at which the mean curve reaches a share of the baseline's best mark. [ ]: 95%"
    " bootstrap interval over runs, from ten runs on. P(faster): ties count half."
)


def comparison_row(figure: str, pair: Speedup) -> Row:
    """Our comparison; the keys are the column names."""
    goal, paired = pair.time_to_target, pair.level is not None and pair.level.paired
    row = {
        **_names(figure, pair),
        "runs": f"{pair.n_runs[1]} vs {pair.n_runs[0]}{', paired' * paired}",
        "over": "-" if pair.level is None else duration(pair.compared_hours),
        "mean accuracy, points": points(pair.mean_accuracy),
        "level, points": points(pair.level),
        "target": "-",
        "times as fast": "-",
        "mean time, capped": "-",
        "runs short of it": "-",
    }
    if goal:
        row["target"] = f"{goal.target:.1%}"
        row["times as fast"] = times(goal.ratio, goal.ci95, "a bound")
        row["mean time, capped"] = "{1} vs {0}".format(*map(duration, goal.restricted_hours))
        row["runs short of it"] = "{1} vs {0}".format(*goal.censored)
    return row


def published_row(figure: str, pair: Speedup) -> Row:
    """The published speed-up."""
    interval = published_interval(pair)
    return {
        **_names(figure, pair),
        "threshold": f"{pair.threshold:.2%} ({pair.fraction_of_best:.4g} of best)",
        "time": f"{duration(pair.pods_hours)} vs {duration(pair.baseline_hours)}",
        "speed-up": times(pair.speedup, interval) if pair.baseline_hours else "-",
        "P(faster)": "-" if interval is None else f"{pair.probability_faster:.3f}",
    }


TABLES = (  # title, note, row of a pair
    ("Comparison of runs", OURS_NOTE, comparison_row),
    ("Published definition", PUBLISHED_NOTE, published_row),
)


def text(pairs: list[tuple[str, Speedup]], form: str) -> str:
    """Both tables; form: table | markdown | latex. pairs: figure name and comparison."""
    write = {"table": aligned, "markdown": markdown, "latex": latex}[form]
    lead, parts = "% " if form == "latex" else "", []
    for title, note, row in TABLES:
        rows = [row(name, pair) for name, pair in pairs]
        parts.append(f"{lead}{title}\n\n{write(rows)}\n\n{lead}{note}")
    return "\n\n".join(parts)


def duration(hours: float | None) -> str:
    """3 h, 24 min, 35 s: in the largest unit with a number of at least 1."""
    if hours is None:
        return "not reached"
    for unit, per_hour in (("h", 1), ("min", 60)):
        if hours * per_hour >= 1:
            return f"{hours * per_hour:.3g} {unit}"
    return f"{hours * 3600:.3g} s"


def points(found: Difference | None) -> str:
    """+1.9 [+1.1, +2.7] in points; without an interval where an arm has one run."""
    if found is None:
        return "-"
    ends = "one run" if found.ci95 is None else ", ".join(f"{100 * x:+.1f}" for x in found.ci95)
    return f"{100 * found.difference:+.1f} [{ends}]"


def times(
    ratio: float | None, ci95: list[float | None] | None, missing: str = "not reached"
) -> str:
    """2.00 [1.00, 2.67]: how many times as fast. An end of 0: the arm may never reach the goal."""
    number = missing if ratio is None else f"{ratio:.2f}"
    if ci95 is None:
        return number
    words = {0: "not reached", None: "unbounded"}
    return f"{number} [{', '.join(words.get(x) or f'{x:.2f}' for x in ci95)}]"


def aligned(rows: list[Row]) -> str:
    """Columns padded with spaces, for a terminal or a log."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def markdown(rows: list[Row]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def latex(rows: list[Row]) -> str:
    """A tabular with the rules of the package booktabs."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    head, *body = (
        " & ".join("".join(LATEX.get(c, c) for c in cell) for cell in line) + r" \\"
        for line in lines
    )
    begin = rf"\begin{{tabular}}{{{'l' * len(rows[0])}}}"
    return "\n".join(
        [begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    )


def _names(figure: str, pair: Speedup) -> Row:
    clock = "" if pair.time == "measured" else f", time {pair.time}"
    return {"figure": figure + clock, "arm vs baseline": f"{pair.pods} vs {pair.baseline}"}
