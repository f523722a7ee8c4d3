"""The figures: accuracy and completion length against training time, and seconds per step.

Arms differ in line, marker and hatch as well as in colour, for grey print.
"""

from pathlib import Path

import numpy as np
from matplotlib import style as styles
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import EngFormatter, MaxNLocator

from pods.config.errors import UserError
from pods.figures import COLOURS, STYLE, speedup
from pods.figures.curves import Series
from pods.figures.figure import UNITS, Figure
from pods.figures.speedup import Speedup
from pods.figures.statistics import mean_and_error, t95

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^Dv"
HATCHES = ("", "///", "...", "xxx", "\\\\\\")
METRIC_NAMES = {
    "ans_acc": "Accuracy (correct), %",
    "both_acc": "Accuracy (correct and well formed), %",
    "for_acc": "Well formed, %",
}
AXES = {
    "steps": "Optimiser steps",
    "tokens_generated": "Generated tokens",
    "tokens_trained": "Trained tokens",
}
SENTENCES = (
    "{arm vs baseline}, {runs} runs: mean accuracy over {over} {mean accuracy, points} points",
    "time to {target}: {times as fast} times as fast",
    "published definition: time to {threshold}: {speed-up} times as fast",
)
BAND = "mean over runs; band: Student's 95% interval over runs"
FEW = 5  # runs: below, every single run is drawn
GREY = {"color": "#555555", "linewidth": 0.8}


def main_figure(
    figure: Figure, series: list[Series], headline: Speedup | None, x: str = "time"
) -> Canvas:
    """Accuracy on the left, seconds per step on the right, and the speed-up with its interval."""
    with styles.context(STYLE):
        canvas = Canvas(figsize=(8.2, 4.8), layout="constrained")
        curve, cost = canvas.subplots(1, 2, width_ratios=[3, 1])
        _curves(curve, figure, series, "value", x)
        if headline and headline.baseline_hours is not None and x == "time":
            _threshold(curve, headline, UNITS[figure.time_unit])
        _seconds_per_step(cost, series)
        lines = [_title(figure, series)]
        if headline:
            row = speedup.comparison_row("", headline) | speedup.published_row("", headline)
            lines += [sentence.format(**row) for sentence in SENTENCES]
        canvas.suptitle("\n".join(lines), fontsize=10, wrap=True)
    return canvas


def length_figure(figure: Figure, series: list[Series], x: str = "time") -> Canvas:
    """Mean completion length against the same axis."""
    with styles.context(STYLE):
        canvas = Canvas(figsize=(6.0, 3.6), layout="constrained")
        _curves(canvas.subplots(), figure, series, "length", x)
        canvas.suptitle(_title(figure, series, ": completion length"), fontsize=10, wrap=True)
    return canvas


def panels(arms: dict[str, dict[str, np.ndarray]], seconds: np.ndarray, x: str) -> Canvas:
    """The board: a panel of accuracies for each title, arm -> (runs, marks), at these seconds."""
    with styles.context(STYLE):
        canvas = Canvas(figsize=(8.2, 3.8), layout="constrained")
        for axes, title in zip(canvas.subplots(1, len(arms), sharey=True), arms, strict=True):
            for index, (arm, values) in enumerate(arms[title].items()):
                mean, error, n = mean_and_error(100 * values)
                look, half = style(index, None), t95(n - 1) * error
                axes.plot(seconds, mean, label=arm, markersize=4, **look)
                colour = look["color"]
                axes.fill_between(
                    seconds, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0
                )
            axes.set(title=title, xlabel=x)
        axes.legend(loc="lower right")
        canvas.axes[0].set_ylabel("Correct, % of test questions")
    return canvas


def save(canvas: Canvas, stem: Path) -> None:
    """Write <stem>.pdf (vector, embedded fonts, without a date) and <stem>.png."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with styles.context(STYLE):
        canvas.savefig(stem.with_suffix(".png"), dpi=200)
        canvas.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})


def style(index: int, colour: str | None) -> dict[str, object]:
    """Colour, line and marker of the index-th arm."""
    look = {"color": colour or COLOURS[index % len(COLOURS)]}
    return look | {"linestyle": LINES[index % len(LINES)], "marker": MARKERS[index % len(MARKERS)]}


def x_values(figure: Figure, arm: Series, x: str) -> np.ndarray:
    """The axis value of each mark: its time, or the mean over runs of steps or tokens."""
    if x == "time":
        return arm.hours * UNITS[figure.time_unit]
    if x == "gpu_hours":
        return arm.hours * figure.gpus
    mean, _, _ = mean_and_error(arm.quantities[x])
    if not np.isfinite(mean).any():
        text = f"x={x}: the results of {arm.label} do not have it"
        raise UserError(f"{text}; published files have x=time, x=steps and x=gpu_hours")
    return mean


def _x_label(figure: Figure, x: str, measured: bool) -> str:
    if x != "time":
        return AXES.get(x, f"GPU-hours ({figure.gpus} GPU{'s' * (figure.gpus > 1)})")
    mark = figure.grid_seconds / 3600 * UNITS[figure.time_unit]
    index = "" if measured or figure.wandb_export else f" (checkpoint index × {mark:g})"
    return f"Training time, {figure.time_unit}{index}"


def _title(figure: Figure, series: list[Series], quantity: str = "") -> str:
    """The title with the clock if it is priced, and what band and thin lines are."""
    clock = "" if series[0].clock == "measured" else f"; time priced: {series[0].clock}"
    few = any(1 < len(arm.runs) < FEW for arm in series)
    runs = f"; thin lines: single runs of arms with fewer than {FEW}" * few
    return f"{figure.title}{clock}{quantity}\n{BAND}{runs}"


def _curves(axes: Axes, figure: Figure, series: list[Series], quantity: str, x: str) -> None:
    """A line for each arm with Student's band; of few runs every one, thin."""
    bands, scale = [], 100.0 if quantity == "value" else 1.0
    accuracy = METRIC_NAMES.get(figure.metric, f"{figure.metric}, %")
    axes.set_ylabel(accuracy if quantity == "value" else "Mean completion length, tokens")
    for index, arm in enumerate(series):
        at, values = x_values(figure, arm, x), scale * arm.quantities[quantity]
        if np.isfinite(base := arm.base.get(quantity, np.nan)):
            at, values = np.insert(at, 0, 0.0), np.insert(values, 0, scale * base, axis=1)
        mean, sem, n = mean_and_error(values)
        there = (n > 0) & np.isfinite(at)
        at, mean, half, values = at[there], mean[there], (t95(n - 1) * sem)[there], values[:, there]
        look, runs = style(index, arm.colour), len(arm.runs)
        label = f"{arm.label} ({runs} run{'s' * (runs > 1)})"
        axes.plot(at, mean, label=label, markersize=4, linewidth=1.6, **look)
        if 1 < runs < FEW:
            axes.plot(at, values.T, color=look["color"], linewidth=0.6, alpha=0.45)
        bands.append((at, mean - half, mean + half, look["color"]))  # NaN for one run
    limits = axes.get_ylim()  # of the curves: two runs have a band of 13 standard errors
    for at, low, high, colour in bands:
        axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_ylim(limits)
    axes.set_xlabel(_x_label(figure, x, all(arm.measured for arm in series)))
    axes.margins(x=0.02)
    left, right = axes.get_xlim()
    axes.set_xlim(left=min(left, -0.02 * right))  # show time 0 also without a base
    if x.startswith("tokens"):
        axes.xaxis.set_major_formatter(EngFormatter())
    axes.legend(loc="best")
    axes.yaxis.set_major_locator(MaxNLocator(8))


def _threshold(axes: Axes, headline: Speedup, unit: float) -> None:
    """The threshold as a line, and the grid mark at which each arm reaches it."""
    level = headline.threshold * 100
    axes.axhline(level, **GREY, linestyle=(0, (1, 2)))
    bottom, hours = axes.get_ylim()[0], (headline.baseline_hours, headline.pods_hours)
    at = [unit * mark for mark in hours if mark is not None]
    axes.vlines(at, bottom, level, **GREY, linestyle=":")
    axes.set_ylim(bottom=bottom)


def _seconds_per_step(axes: Axes, series: list[Series]) -> None:
    """Bars of seconds per step: the published split if known, else training time over steps."""
    for index, arm in enumerate(series):
        cost, bottom = arm.seconds_per_step, 0.0
        parts = [cost.generate, cost.update] if cost else [seconds_per_step(arm)]
        look = {"color": style(index, arm.colour)["color"], "hatch": HATCHES[index % len(HATCHES)]}
        for part, alpha in zip(parts, (None, 0.45), strict=False):
            bar = axes.bar(index, part, 0.7, bottom, alpha=alpha, edgecolor="white", **look)
            bottom += part
        axes.bar_label(bar, fmt="%.3g", padding=2)
    split = any(arm.seconds_per_step for arm in series)
    axes.set_title("full: inference, light: update" if split else "training time / steps")
    axes.set_ylabel("Seconds per step")
    axes.set_xticks(range(len(series)), [arm.label for arm in series], rotation=40, ha="right")
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.12)


def seconds_per_step(arm: Series) -> float:
    """Mean over runs of training time over optimiser steps at the run's last mark."""
    ratio = arm.quantities["seconds"] / arm.quantities["steps"]
    last = [run[np.isfinite(run)][-1] for run in ratio if np.isfinite(run).any()]
    return float(np.mean(last)) if last else float("nan")
