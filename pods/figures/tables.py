"""Comparisons of arms as tables: for the console, Markdown, LaTeX and the report.

Used by `uv run scripts/speedup.py` and `uv run scripts/report.py`.
"""

from pods.figures.speedup import Speedup, published_interval
from pods.figures.statistics import Difference

Row = dict[str, str]
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
    hours = goal.restricted_hours if goal else []
    return {
        **_names(figure, pair),
        "runs": f"{pair.n_runs[1]} vs {pair.n_runs[0]}{', paired' * paired}",
        "over": "-" if pair.level is None else duration(pair.compared_hours),
        "mean accuracy, points": points(pair.mean_accuracy),
        "level, points": points(pair.level),
        "target": f"{goal.target:.1%}" if goal else "-",
        "times as fast": times(goal.ratio, goal.ci95, "a bound") if goal else "-",
        "mean time, capped": "{1} vs {0}".format(*map(duration, hours)) if goal else "-",
        "runs short of it": "{1} vs {0}".format(*goal.censored) if goal else "-",
    }


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


def points(difference: Difference | None) -> str:
    """+1.9 [+1.1, +2.7] in points; without an interval where an arm has one run."""
    if difference is None:
        return "-"
    ends = [f"{100 * x:+.1f}" for x in difference.ci95 or []] or ["one run"]
    return f"{100 * difference.difference:+.1f} [{', '.join(ends)}]"


def times(
    ratio: float | None, ci95: list[float | None] | None, missing: str = "not reached"
) -> str:
    """2.00 [1.00, 2.67]: how many times as fast. An end of 0: the arm may never reach the goal."""
    number = missing if ratio is None else f"{ratio:.2f}"
    words = {0: "not reached", None: "unbounded"}
    ends = ", ".join(words.get(x) or f"{x:.2f}" for x in ci95 or [])
    return f"{number} [{ends}]" if ends else number


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
    import pandas  # half a second, which no other form needs

    return pandas.DataFrame(rows).to_latex(index=False, escape=True).rstrip()


def _names(figure: str, pair: Speedup) -> Row:
    clock = "" if pair.time == "measured" else f", time {pair.time}"
    return {"figure": figure + clock, "arm vs baseline": f"{pair.pods} vs {pair.baseline}"}
