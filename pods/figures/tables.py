"""Speed-ups as rows of text for the console, Markdown and the report.

Used by `uv run scripts/speedup.py` and `uv run scripts/report.py`.
"""

from pods.figures.speedup import Speedup

NOTE = "[ ]: 95% bootstrap interval over runs"


def speedup_rows(figure: str, pairs: list[Speedup]) -> list[dict[str, str]]:
    """One row per pair; the keys are the column names."""
    return [
        {
            "figure": figure,
            "arm vs baseline": f"{pair.pods} vs {pair.baseline}",
            "runs": f"{pair.n_runs[1]} vs {pair.n_runs[0]}",
            f"{pair.fraction_of_best:.4g} of best": f"{pair.threshold:.2%}",
            "time": f"{duration(pair.pods_hours)} vs {duration(pair.baseline_hours)}",
            "speed-up": _ratio(pair, pair.speedup, pair.ci95),
            "interpolated": _ratio(pair, pair.speedup_interpolated, pair.ci95_interpolated),
            "P(> 1)": "-" if pair.probability_faster is None else f"{pair.probability_faster:.3f}",
            "final difference, points": _with_interval(
                pair.final_difference, pair.final_difference_ci95, "{:+.1f}", 100
            ),
        }
        for pair in pairs
    ]


def duration(hours: float | None) -> str:
    """3 h, 24 min, 35 s: in the largest unit with a number of at least 1."""
    if hours is None:
        return "never"
    for unit, per_hour in (("h", 1), ("min", 60)):
        if hours * per_hour >= 1:
            return f"{hours * per_hour:.3g} {unit}"
    return f"{hours * 3600:.3g} s"


def aligned(rows: list[dict[str, str]]) -> str:
    """Columns padded with spaces, for a terminal or a log."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def markdown(rows: list[dict[str, str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ratio(pair: Speedup, value: float | None, ci95: list[float] | None) -> str:
    return "-" if pair.baseline_hours is None else _with_interval(value, ci95, "{:.2f}")


def _with_interval(
    value: float | None, ci95: list[float] | None, form: str, scale: float = 1
) -> str:
    number = "never" if value is None else form.format(value * scale)
    ends = [form.format(end * scale) for end in ci95] if ci95 else ["one run"]
    return f"{number} [{', '.join(ends)}]"
