"""The figures: accuracy and completion length against training time, seconds per step, and the
metrics of training.

Methods differ in line, marker and hatch as well as in colour, for grey print.
"""

import io
import re
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import pandas
from matplotlib import style as styles
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from pods.figures import COLOURS, STYLE
from pods.figures.figure import UNITS, Figure, Series
from pods.figures.statistics import FEWEST_FOR_BAND, band, mean_and_error
from pods.files import write_atomic

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^DvPX*"
HATCHES = ("", "///", "...", "xxx", "\\\\\\")
METRIC_NAMES = {
    "ans_acc": "Accuracy (correct), %",
    "both_acc": "Accuracy (correct and well formed), %",
    "for_acc": "Well formed, %",
}
PANELS = {  # of training_figure: the metrics of a panel
    "accuracy (dashed: greedy)": r"eval/(greedy_)?accuracy",
    "mean reward (dashed: trained on)": r"(all|kept)/reward_mean",
    "groups with equal rewards (dashed: trained on)": r"(all|kept)/zero_variance_groups",
    "mean length, tokens (dashed: trained on)": r"(all|kept)/completion_length_mean",
    "clipped completions": r"all/clipped_ratio",
    "entropy, nats": r"entropy",
    "seconds of a step (dashed: update)": r"seconds/(generate|update)",
}


@styles.context(STYLE)
def main_figure(figure: Figure, series: list[Series]) -> Canvas:
    """Accuracy on the left, seconds per step on the right."""
    canvas = Canvas(figsize=(8.2, 4.8))
    curve, cost = canvas.subplots(1, 2, width_ratios=[3, 1])
    _curves(curve, figure, series, "value")
    _seconds_per_step(cost, series)
    return _framed(canvas, figure.title)


@styles.context(STYLE)
def single_figure(figure: Figure, series: list[Series]) -> Canvas:
    """One method: accuracy by sampled and by greedy completions, and the base as dotted lines."""
    canvas = Canvas(figsize=(6.0, 4.2))
    axes = canvas.subplots()
    _curves(axes, figure, series, "value")
    for index, method in enumerate(series):
        for base in 100 * method.start("value")[:1]:
            axes.axhline(
                base, color=style(index, method.colour)["color"], linestyle=":", linewidth=1
            )
    return _framed(canvas, figure.title)


@styles.context(STYLE)
def figure_by_value(figure: Figure, parts: list[tuple[Figure, list[Series]]]) -> Canvas:
    """A panel for each value of a column of the data, with its number of questions."""
    columns = min(3, len(parts))
    rows = -(-len(parts) // columns)
    canvas = Canvas(figsize=(2.9 * columns + 1, 2.5 * rows + 0.8))
    panels = canvas.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for axes, (part, series) in zip(panels, parts, strict=False):
        _curves(axes, part, series, "value")
        axes.set_title(f"{part.title} ({series[0].settings['scored.questions']} questions)")
    for axes in panels[len(parts) :]:
        axes.set_visible(False)
    for axes in panels:
        axes.label_outer()
    return _framed(canvas, figure.title)


@styles.context(STYLE)
def length_figure(figure: Figure, series: list[Series]) -> Canvas:
    """Mean completion length against the same axis."""
    canvas = Canvas(figsize=(6.0, 3.8))
    _curves(canvas.subplots(), figure, series, "length")
    return _framed(canvas, f"{figure.title}: completion length")


@styles.context(STYLE)
def training_figure(steps: pandas.DataFrame) -> Canvas:
    """Metrics of a run against training time, a panel for each quantity. steps: the rows of
    metrics.jsonl."""
    means = r"all/(?!reward_|completion_length_)\w+_mean"
    by_function = [name for name in steps if re.fullmatch(means, name)]
    panels = {
        title: [name for name in steps if re.fullmatch(metrics, name)]
        for title, metrics in (PANELS | {name: name for name in by_function}).items()
    }
    panels = {title: names for title, names in panels.items() if names}
    rows = -(-len(panels) // 2)
    canvas = Canvas(figsize=(8.2, 2.4 * rows + 0.6))
    for place, (title, names) in enumerate(panels.items(), 1):
        axes = canvas.add_subplot(rows, 2, place, title=title, xlabel="training time, s")
        for name, line in zip(names, LINES, strict=False):
            points = steps.dropna(subset=name)
            marker = "." if len(points) < 20 else None  # one evaluation is no line
            look = {"color": COLOURS[0], "linestyle": line, "marker": marker}
            axes.plot(points["train_seconds"], points[name], linewidth=1.1, **look)
    return canvas


def caption(figure: Figure, series: list[Series]) -> str:
    """What a paper prints below a picture: the runs, and what bands and lines are."""
    counts = [len(method.runs) for method in series]
    parts = [about(figure, series)]
    if len(series) == 1:
        parts.append("Dotted lines: the base.")
    if max(counts) >= FEWEST_FOR_BAND:
        parts.append("Bands: Student's 95% interval over runs.")
    if 2 in counts:
        parts.append("Thin lines: each of two runs.")
    return " ".join(parts) + "\n"


def about(figure: Figure, series: list[Series]) -> str:
    """The runs of a figure or table, and how they were scored."""
    runs = ", ".join(f"{method.label}: {len(method.runs)}" for method in series)
    several = any(len(method.runs) > 1 for method in series)
    average = f"Mean over runs ({runs})." if several else "Single runs."
    return " ".join([f"{figure.title}.", *_how_scored(figure, series[0].settings), average])


def _how_scored(figure: Figure, settings: dict[str, Any]) -> list[str]:
    """A sentence on training and evaluation; published files say nothing of either."""
    if "scored.questions" not in settings:
        return []
    each = "1 completion" if settings["repeats"] == 1 else f"{settings['repeats']} completions"
    temperature = settings.get("scored.temperature")
    how = f"{each} each at temperature {temperature:g}" if temperature else "greedy completions"
    graders = f", graded by {settings['scored.rewards']}" if "scored.rewards" in settings else ""
    clock = settings.get("clock.name", "measured")
    commit = f", commit {settings['git_commit']}" if settings.get("git_commit") else ""
    seconds = "measured" if clock == "measured" else f"priced by {clock}"
    return [
        f"{settings['model.name']}, seconds {seconds}{commit}.",
        f"{settings['scored.questions']} questions of {figure.dataset}, {how}{graders}.",
    ]


def draw(axes: Axes, x: np.ndarray, values: np.ndarray, most: float, look: dict) -> None:
    """Mean over runs, (runs, points) in 0..most, with Student's band; of two runs both, thin."""
    mean, _, _ = mean_and_error(values)
    look = look | {"label": f" {look['label']}"}  # matplotlib's legend leaves out _names
    axes.plot(x, mean, markersize=4, linewidth=1.6, **look)
    if len(values) == 2:
        axes.plot(x, values.T, color=look["color"], linewidth=0.6, alpha=0.45)
    if len(values) >= FEWEST_FOR_BAND:
        axes.fill_between(x, *band(values, most), color=look["color"], alpha=0.2, linewidth=0)


def save(canvas: Canvas, stem: Path) -> None:
    """Write <stem>.pdf (vector, embedded fonts, without a date) and <stem>.png."""
    png = io.BytesIO()
    pdf = io.BytesIO()
    with styles.context(STYLE):
        canvas.savefig(png, format="png", dpi=200)
        canvas.savefig(pdf, format="pdf", metadata={"CreationDate": None})
    write_atomic(stem.with_suffix(".png"), png.getvalue())
    write_atomic(stem.with_suffix(".pdf"), pdf.getvalue())


def svg(canvas: Canvas) -> str:
    """The figure as an element of a page, with its text as text."""
    file = io.StringIO()
    with styles.context(STYLE):
        canvas.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def style(index: int, colour: str | None) -> dict[str, object]:
    """Colour, line and marker of the index-th method."""
    return {
        "color": colour or COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def _framed(canvas: Canvas, title: str) -> Canvas:
    """With a title of one line, and the legend outside of the axes, where it hides nothing."""
    characters = int(12 * canvas.get_figwidth())  # in a line
    canvas.suptitle(shorten(title, characters, placeholder=" ..."))
    handles = canvas.axes[0].get_legend_handles_labels()
    canvas.legend(*handles, loc="outside lower center", ncols=2)
    return canvas


def _curves(axes: Axes, figure: Figure, series: list[Series], quantity: str) -> None:
    """A line for each method with its runs."""
    scale, most = 1, np.inf
    name = "Mean completion length, tokens"
    if quantity == "value":
        scale = most = 100  # %
        name = METRIC_NAMES.get(figure.metric, f"{figure.metric}, %")
    for index, method in enumerate(series):
        hours, values = method.from_start(quantity)
        known = np.isfinite(values).any(axis=0)
        runs = "1 run" if len(method.runs) == 1 else f"{len(method.runs)} runs"
        look = style(index, method.colour) | {"label": f"{method.label} ({runs})"}
        at = hours[known] * UNITS[figure.time_unit]
        draw(axes, at, scale * values[:, known], most, look)
    label = f"Training time, {figure.time_unit}"
    if series[0].clock != "measured":
        label += f", priced: {series[0].clock}"
    if not all(method.measured for method in series):
        point = figure.grid_seconds / 3600 * UNITS[figure.time_unit]
        label += f" (checkpoint index × {point:g})"
    axes.set(xlabel=label, ylabel=name)
    axes.margins(x=0.02)
    left, right = axes.get_xlim()
    axes.set_xlim(left=min(left, -0.02 * right))  # show time 0 also without a base
    axes.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))


def _seconds_per_step(axes: Axes, series: list[Series]) -> None:
    """Bars of seconds per step: the published split if known, else training time over steps."""
    title = "training time / steps"
    for index, method in enumerate(series):
        parts = {"generate": method.seconds_a_step().mean()}
        if method.seconds_per_step:
            parts = method.seconds_per_step
            title = "full: inference, light: update"
        look = {
            "color": style(index, method.colour)["color"],
            "edgecolor": "white",
            "hatch": HATCHES[index % len(HATCHES)],
        }
        bottom = 0.0
        for name, part in parts.items():
            alpha = 0.45 if name == "update" else None
            bar = axes.bar(index, part, 0.7, bottom, alpha=alpha, **look)
            bottom += part
        axes.bar_label(bar, [f"{bottom:.2f}"], padding=2)
    axes.set(title=title, ylabel="Seconds per step")
    labels = [f"{method.label:.18}" for method in series]  # the legend has all
    axes.set_xticks(range(len(series)), labels, rotation=40, ha="right")
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.12)
