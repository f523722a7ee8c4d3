"""The pictures of scripts/plan.py: signal a second by sizes, and by algorithm."""

import math
from textwrap import fill
from typing import Any

import numpy as np
import pandas
from matplotlib import style as styles
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas

from pods.figures import COLOURS, STYLE
from pods.figures.drawing import HATCHES
from pods.signal.compare import BELOW, spanned

CellRow = dict[str, Any]  # a cell as scripts/plan.py prints it with json=true
COLUMNS = 3  # panels in a row
CHARACTERS = 13  # of an inch of a title
DARK = 0.3  # farther than this from the middle of the scale a number is white


def sizes(rows: list[CellRow], reference: str, title: str) -> Canvas:
    """A heat map over n and m for each algorithm, at the P of its best cell; the number is the
    signal a second relative to the reference, a cross a cell below the resolution."""
    cells = pandas.DataFrame(rows).astype({"relative": float})  # NaN below the resolution
    panels = []
    for algorithm, own in cells.groupby("algorithm", sort=False):
        best = own.loc[own["relative"].fillna(0).idxmax(), "prompts"]
        panels.append((f"{algorithm}, P = {best}", own[own["prompts"] == best]))
    most = np.exp(np.nanmax([np.log(1.5), *np.abs(np.log(cells["relative"]))]))
    norm = LogNorm(1 / most, most)
    lines = math.ceil(len(panels) / COLUMNS)
    columns = min(COLUMNS, len(panels))
    with styles.context(STYLE):
        canvas = Canvas(figsize=(0.6 + 2.7 * columns, 0.8 + 2.5 * lines))
        for place, (name, own) in enumerate(panels, 1):
            axes = canvas.add_subplot(lines, columns, place)
            image = heat_map(axes, own, norm)
            axes.set_title(name)
        bar = canvas.colorbar(image, ax=canvas.axes, shrink=0.8)
        ticks = [1 / most, most**-0.5, 1, most**0.5, most]
        bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks], minor=False)
        bar.minorticks_off()
        bar.set_label(f"signal a second, {reference} = 1")
        canvas.suptitle(fill(title, int(CHARACTERS * canvas.get_figwidth())))
    return canvas


def heat_map(axes: Axes, cells: pandas.DataFrame, norm: LogNorm) -> Any:
    """One panel; returns its image."""
    values = cells.pivot(index="m", columns="n", values="relative")
    for n, m, value in zip(cells["n"], cells["m"], cells["relative"], strict=True):
        place = values.columns.get_loc(n), values.index.get_loc(m)
        text = "×" if np.isnan(value) else f"{value:.2f}"
        colour = "white" if abs(norm(value) - 0.5) > DARK else "black"
        axes.text(*place, text, ha="center", va="center", fontsize=8, color=colour)
    image = axes.imshow(values, cmap="PuOr", norm=norm, origin="lower", aspect="auto")
    axes.set_xticks(range(values.shape[1]), values.columns)
    axes.set_yticks(range(values.shape[0]), values.index)
    axes.set(xlabel="n, rollouts of a prompt", ylabel="m, trained on")
    axes.grid(visible=False)
    return image


def algorithms(rows: list[CellRow], reference: str, title: str) -> Canvas:
    """A bar for each algorithm at its best sizes, with the interval, the highest first."""
    cells = pandas.DataFrame(rows).dropna(subset="relative").astype({"relative": float})
    best = cells.sort_values("relative", ascending=False, kind="stable")
    best = best.drop_duplicates("algorithm")
    places = range(len(best))
    labels = best.agg("{0[algorithm]}\nP={0[prompts]} n={0[n]} m={0[m]}".format, axis=1)
    with styles.context(STYLE):
        canvas = Canvas(figsize=(5.6, 1.3 + 0.42 * len(best)))
        axes = canvas.subplots()
        axes.barh(
            places,
            best["relative"],
            0.7,
            color=np.resize(COLOURS, len(best)),
            hatch=np.resize(HATCHES, len(best)),
            edgecolor="white",
            alpha=0.75,
        )
        for place, interval in zip(places, best["relative_ci95"], strict=True):
            axes.plot(interval, [place, place], color="black", linewidth=1.2)
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.axvline(1, color="black", linestyle=":", linewidth=1)
        axes.set_xlabel(f"signal a second, {reference} = 1\nlines: 95 % over questions")
        axes.grid(axis="y", visible=False)
        if best.empty:
            axes.set_title("below the resolution: record more questions and rollouts")
        canvas.suptitle(fill(title, int(CHARACTERS * canvas.get_figwidth())))
    return canvas


def printed(row: CellRow) -> dict[str, str]:
    """A row of the printed table."""
    relative = snr2 = BELOW
    if row["snr2"] is not None:
        snr2 = spanned(row["snr2"], row["snr2_ci95"], ".2g")
    if row["relative"] is not None:
        relative = spanned(row["relative"], row["relative_ci95"])
    return {
        "algorithm": row["algorithm"],
        "P": str(row["prompts"]),
        "n": str(row["n"]),
        "m": str(row["m"]),
        "SNR2 of a step": snr2,
        "cosine": "-" if row["cosine"] is None else f"{row['cosine']:.2f}",
        "alive, %": f"{100 * row['alive']:.0f}",
        "s a step": f"{row['seconds_per_step']:.3g}",
        "steps": str(row["steps"] or "-"),
        "signal a second, GRPO = 1": relative,
    }
