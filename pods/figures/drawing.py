"""The figures: accuracy and completion length against training time, and seconds per step.

Departs from the published plots: every figure states its interval, and arms differ in line, marker
and hatch as well as in colour (Okabe-Ito), for grey print and colour-blind readers.
    uv run scripts/plot.py figure=gsm8k_main
"""

from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import EngFormatter, MaxNLocator

from pods.config.errors import UserError
from pods.config.keys import Text
from pods.figures import tables
from pods.figures.curves import Series, statistics
from pods.figures.figure import UNITS, Figure, FigureConfig
from pods.figures.speedup import Speedup, published_interval
from pods.figures.statistics import t95

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")  # Okabe-Ito
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^Dv"
HATCHES = ("", "///", "...", "xxx", "\\\\\\")
METRIC_NAMES = {
    "ans_acc": "accuracy (right answer), %",
    "both_acc": "accuracy (right answer, right format), %",
    "for_acc": "format kept, %",
}
AXES = {
    "steps": "Optimiser steps",
    "tokens_generated": "Generated tokens",
    "tokens_trained": "Trained tokens",
}
BAND = "band: Student's 95% interval over runs"
FEW = 5  # runs: below, every single run is drawn
STYLE = dict(
    matplotlib.rc_params_from_file(
        Path(__file__).with_name("style.mplstyle"), use_default_template=False
    )
)


class PlotConfig(FigureConfig):
    """The keys of config/plot.yaml."""

    out_dir: Text
    x: Literal["time", "gpu_hours", *AXES]


def main_figure(
    figure: Figure, series: list[Series], headline: Speedup | None, x: str = "time"
) -> Canvas:
    """Accuracy on the left, seconds per step on the right, and the speed-up with its interval."""
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(8.2, 4.8), layout="constrained")
        curve, cost = canvas.subplots(1, 2, width_ratios=[3, 1])
        _curves(curve, figure, series, "value", 100.0, x)
        name = metric_name(figure)
        curve.set_ylabel(name[0].upper() + name[1:])
        if headline and headline.baseline_hours is not None and x == "time":
            _threshold(curve, headline, UNITS[figure.time_unit])
        _seconds_per_step(cost, series)
        lines = [_title(figure, series), f"mean over runs; {band_name(series)}"]
        lines += [sentence(headline), published_sentence(headline)] if headline else []
        canvas.suptitle("\n".join(lines), fontsize=10, wrap=True)
    return canvas


def length_figure(figure: Figure, series: list[Series], x: str = "time") -> Canvas:
    """Mean completion length against the same axis."""
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(6.0, 3.6), layout="constrained")
        axes = canvas.subplots()
        _curves(axes, figure, series, "length", 1.0, x)
        axes.set_ylabel("Mean completion length, tokens")
        title = f"{_title(figure, series)}: completion length"
        canvas.suptitle(f"{title}\nmean over runs; {band_name(series)}", fontsize=10, wrap=True)
    return canvas


def _title(figure: Figure, series: list[Series]) -> str:
    clock = series[0].clock
    return figure.title if clock == "measured" else f"{figure.title}; time priced: {clock}"


def save(canvas: Canvas, stem: Path) -> None:
    """Write <stem>.pdf (vector, embedded fonts, without a date) and <stem>.png."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        canvas.savefig(stem.with_suffix(".png"), dpi=200)
        canvas.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})


def style(index: int, colour: str | None) -> dict[str, object]:
    """Colour, line and marker of the index-th arm."""
    return {
        "color": colour or COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def metric_name(figure: Figure) -> str:
    return METRIC_NAMES.get(figure.metric, f"{figure.metric}, %")


def x_values(figure: Figure, arm: Series, x: str) -> np.ndarray:
    """The axis value of each mark: its time, or the mean over runs of steps or tokens."""
    if x == "time":
        return arm.hours * UNITS[figure.time_unit]
    if x == "gpu_hours":
        return arm.hours * figure.gpus
    mean, _, _ = statistics(arm.quantities[x])
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


def _curves(
    axes: Axes, figure: Figure, series: list[Series], quantity: str, scale: float, x: str
) -> None:
    bands = []
    for index, arm in enumerate(series):
        at, mean, band, values = line(figure, arm, quantity, x, scale)
        look = style(index, arm.colour)
        axes.plot(at, mean, label=arm.title, markersize=4, linewidth=1.6, **look)
        if 1 < len(values) < FEW:
            axes.plot(at, values.T, color=look["color"], linewidth=0.6, alpha=0.45)
        bands.append((at, *band, look["color"]))
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


def band_name(series: list[Series]) -> str:
    """What the band is, and which arms show single runs."""
    few = any(1 < len(arm.runs) < FEW for arm in series)
    return BAND + f"; thin lines: single runs of arms with fewer than {FEW}" * few


def line(
    figure: Figure, arm: Series, quantity: str, x: str, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Axis values, mean, Student's band (2, marks) and values (runs, marks) from the base on, where
    a run has a value; the band is NaN where fewer than two have."""
    at, values = x_values(figure, arm, x), scale * arm.quantities[quantity]
    if np.isfinite(base := arm.base.get(quantity, np.nan)):
        at, values = np.insert(at, 0, 0.0), np.insert(values, 0, scale * base, axis=1)
    mean, sem, n = statistics(values)
    half, there = t95(n - 1) * sem, (n > 0) & np.isfinite(at)
    return at[there], mean[there], np.stack([mean - half, mean + half])[:, there], values[:, there]


def _threshold(axes: Axes, headline: Speedup, unit: float) -> None:
    """The threshold as a line, and the grid mark at which each arm reaches it."""
    level = headline.threshold * 100
    axes.axhline(level, color="#555555", linewidth=0.8, linestyle=(0, (1, 2)))
    bottom = axes.get_ylim()[0]
    for hours in (headline.baseline_hours, headline.pods_hours):
        if hours is not None:
            axes.vlines(hours * unit, bottom, level, color="#555555", linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=bottom)


def _seconds_per_step(axes: Axes, series: list[Series]) -> None:
    """Bars of seconds per step: the published split where known, else training time over steps."""
    for index, arm in enumerate(series):
        cost, bottom = arm.seconds_per_step, 0.0
        parts = [cost.generate, cost.update] if cost else [seconds_per_step(arm)]
        bars = {"color": style(index, arm.colour)["color"], "hatch": HATCHES[index % len(HATCHES)]}
        for part, alpha in zip(parts, (None, 0.45), strict=False):
            axes.bar(index, part, 0.7, bottom, alpha=alpha, edgecolor="white", **bars)
            bottom += part
        place = {"textcoords": "offset points", "ha": "center"}
        axes.annotate(f"{bottom:.3g}", (index, bottom), (0, 2), **place)
    split = any(arm.seconds_per_step for arm in series)
    axes.set_title("full: inference, light: update" if split else "training time / steps")
    axes.set_ylabel("Seconds per step")
    long = sum(len(arm.label) for arm in series) > 16
    turn = {"rotation": 40, "ha": "right"} if long else {}
    axes.set_xticks(range(len(series)), [arm.label for arm in series], **turn)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.12)


def seconds_per_step(arm: Series) -> float:
    """Mean over runs of training time over optimiser steps at the run's last mark."""
    ratio = arm.quantities["seconds"] / arm.quantities["steps"]
    last = [run[np.isfinite(run)][-1] for run in ratio if np.isfinite(run).any()]
    return float(np.mean(last)) if last else float("nan")


def sentence(pair: Speedup) -> str:
    """Our comparison in words: accuracy averaged over time, and the time to the target."""
    if pair.mean_accuracy is None:
        return f"{pair.pods} and {pair.baseline} have no time in common"
    how = "paired by seed" if pair.mean_accuracy.paired else "Welch"
    words = f"{pair.pods} against {pair.baseline}, {how}: mean accuracy over"
    words += f" {tables.duration(pair.compared_hours)} {tables.points(pair.mean_accuracy)} points"
    if goal := pair.time_to_target:
        fast = tables.times(goal.ratio, goal.ci95, "a bound")
        words += f"\ntime to {goal.target:.1%}: {fast} times as fast"
    return words


def published_sentence(pair: Speedup) -> str:
    """The published speed-up in words, with its interval where the runs allow one."""
    words = "published definition: "
    if pair.baseline_hours is None:
        return f"{words}{pair.baseline} never scored above 0"
    goal = f"{pair.threshold:.1%} ({pair.fraction_of_best:.0%} of {pair.baseline}'s best)"
    if pair.speedup is None:
        return f"{words}{pair.pods} does not reach {goal}"
    fast = tables.times(pair.speedup, published_interval(pair))
    rising = f"; {pair.baseline} was still rising" if pair.baseline_still_rising else ""
    return f"{words}time to {goal}: {fast} times as fast{rising}"
