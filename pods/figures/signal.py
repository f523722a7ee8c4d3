"""The pictures of scripts/plan.py: signal a second by sizes, and by algorithm."""

import math
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import style as styles
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas

from pods.figures import COLOURS, STYLE
from pods.figures.drawing import HATCHES
from pods.signal.compare import BELOW

CellRow = dict[str, Any]  # a cell as scripts/plan.py prints it with json=true
COLUMNS = 3  # panels in a row
CHARACTERS = 13  # of an inch of a title
DARK = 0.3  # farther than this from the middle of the scale a number is white


def sizes(rows: list[CellRow], reference: str, title: str) -> Canvas:
    """A heat map over n and m for each algorithm, at the P of its best cell; the number is the
    signal a second relative to the reference, a cross a cell below the resolution."""
    by_algorithm: dict[str, list[CellRow]] = {}
    for row in rows:
        by_algorithm.setdefault(row["algorithm"], []).append(row)
    values = [row["relative"] for row in rows if row["relative"] is not None]
    most = max([1.5, *values, *(1 / value for value in values)])
    norm = LogNorm(1 / most, most)
    lines = math.ceil(len(by_algorithm) / COLUMNS)
    columns = min(COLUMNS, len(by_algorithm))
    with styles.context(STYLE):
        canvas = Canvas(figsize=(0.6 + 2.7 * columns, 0.8 + 2.5 * lines), layout="constrained")
        panels = canvas.subplots(lines, columns, squeeze=False).flatten()
        for axes, (algorithm, own) in zip(panels, by_algorithm.items(), strict=False):
            best = max(own, key=lambda row: row["relative"] or 0)
            own = [row for row in own if row["prompts"] == best["prompts"]]
            image = heat_map(axes, own, norm)
            axes.set_title(f"{algorithm}, P = {best['prompts']}")
        for axes in panels[len(by_algorithm) :]:
            axes.set_visible(False)
        bar = canvas.colorbar(image, ax=panels.tolist(), shrink=0.8)
        ticks = [1 / most, most**-0.5, 1, most**0.5, most]
        bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks], minor=False)
        bar.minorticks_off()
        bar.set_label(f"signal a second, {reference} = 1")
        canvas.suptitle(fill(title, int(CHARACTERS * canvas.get_figwidth())), fontsize=10)
    return canvas


def heat_map(axes: Axes, rows: list[CellRow], norm: LogNorm) -> Any:
    """One panel; returns its image."""
    across = sorted({row["n"] for row in rows})
    up = sorted({row["m"] for row in rows})
    values = np.full((len(up), len(across)), np.nan)
    for row in rows:
        place = up.index(row["m"]), across.index(row["n"])
        text = "×"
        colour = "black"
        if row["relative"] is not None:
            values[place] = row["relative"]
            text = f"{row['relative']:.2f}"
            if abs(norm(row["relative"]) - 0.5) > DARK:
                colour = "white"
        axes.text(*place[::-1], text, ha="center", va="center", fontsize=8, color=colour)
    image = axes.imshow(values, cmap="PuOr", norm=norm, origin="lower", aspect="auto")
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(up)), up)
    axes.set(xlabel="n, rollouts of a prompt", ylabel="m, trained on")
    axes.grid(visible=False)
    return image


def algorithms(rows: list[CellRow], reference: str, title: str) -> Canvas:
    """A bar for each algorithm at its best sizes, with the interval, the highest first."""
    best: dict[str, CellRow] = {}
    for row in sorted(rows, key=lambda row: -(row["relative"] or 0)):
        if row["relative"] is not None:
            best.setdefault(row["algorithm"], row)
    with styles.context(STYLE):
        canvas = Canvas(figsize=(5.6, 1.3 + 0.42 * len(best)), layout="constrained")
        axes = canvas.subplots()
        for place, row in enumerate(best.values()):
            low, high = row["relative_ci95"]
            value = row["relative"]
            axes.barh(
                place,
                value,
                0.7,
                color=COLOURS[place % len(COLOURS)],
                hatch=HATCHES[place % len(HATCHES)],
                edgecolor="white",
                alpha=0.75,
            )
            axes.plot([low, high], [place, place], color="black", linewidth=1.2)
        labels = [
            f"{name}\nP={row['prompts']} n={row['n']} m={row['m']}" for name, row in best.items()
        ]
        axes.set_yticks(range(len(best)), labels)
        axes.invert_yaxis()
        axes.axvline(1, color="black", linestyle=":", linewidth=1)
        axes.set_xlabel(f"signal a second, {reference} = 1\nlines: 95 % over questions")
        axes.grid(axis="y", visible=False)
        if not best:
            axes.set_title("below the resolution: record more questions and rollouts")
        canvas.suptitle(fill(title, int(CHARACTERS * canvas.get_figwidth())), fontsize=10)
    return canvas


def printed(row: CellRow) -> dict[str, str]:
    """A row of the printed table."""
    relative = snr2 = BELOW
    if row["snr2"] is not None:
        snr2 = f"{row['snr2']:.3g} ({row['snr2_ci95'][0]:.2g} to {row['snr2_ci95'][1]:.2g})"
    if row["relative"] is not None:
        low, high = row["relative_ci95"]
        relative = f"{row['relative']:.2f} ({low:.2f} to {high:.2f})"
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
