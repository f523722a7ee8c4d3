"""Numbers with their intervals as the texts of a table."""

from collections.abc import Sequence

from pods.figures.statistics import Difference


def duration(hours: float | None) -> str:
    """3 h, 24 min, 35 s: in the largest unit with a number of at least 1."""
    if hours is None:
        return "not reached"
    if hours >= 1:
        return f"{hours:.3g} h"
    minutes = 60 * hours
    if minutes >= 1:
        return f"{minutes:.3g} min"
    return f"{3600 * hours:.3g} s"


def percent(share: float, ci95: Sequence[float] | None, form: str = ".1f") -> str:
    """80.1 [79.2, 81.0] in percent or points; without an interval its number alone."""
    number = format(100 * share, form)
    if ci95 is None:
        return number
    low, high = (format(100 * end, form) for end in ci95)
    return f"{number} [{low}, {high}]"


def points(difference: Difference | None) -> str:
    """+1.9 [+1.1, +2.7] in points; without an interval if a method has one run."""
    if difference is None:
        return "-"
    one_run = " [one run]" * (difference.ci95 is None)
    return percent(difference.difference, difference.ci95, "+.1f") + one_run


def times(
    ratio: float | None, ci95: list[float | None] | None, missing: str = "not reached"
) -> str:
    """2.00 [1.00, 2.67]: how many times as fast; `missing` stands for no ratio, and unknown for one
    whose interval has no end."""
    number = missing if ratio is None else f"{ratio:.2f}"
    if ci95 is None:
        return number
    if not ci95[0] and ci95[1] is None:
        number = "unknown"
    return f"{number} [{', '.join(map(_end, ci95))}]"


def _end(ratio: float | None) -> str:
    """An end of an interval of ratios; 0: the method may never reach the goal."""
    if ratio is None:
        return "unbounded"
    return f"{ratio:.2f}" if ratio else "not reached"
