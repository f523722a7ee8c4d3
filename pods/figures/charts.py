"""Plotly charts of the report: learning curves, seconds by phase, a figure's arms with a band.

Used by `uv run scripts/report.py`. The colours are those of drawing.py.
"""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from pods.clock import STEP_PHASES
from pods.figures import drawing
from pods.figures.curves import Series
from pods.figures.definition import Figure
from pods.figures.drawing import COLOURS, FEW, metric_name, style
from pods.runs.results import Results

DASHES = ("solid", "dash", "dashdot", "dot", "longdashdot")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down")
CURVES = {
    "all/reward_mean": "reward, mean of the n generated",
    "kept/reward_mean": "reward, mean of the m kept",
    "all/correctness_mean": "correct share of the n",
    "all/zero_variance_groups": "groups with equal rewards (no signal)",
    "all/clipped_ratio": "completions cut at the limit",
}


def html(chart: go.Figure, name: str) -> str:
    """The chart as a <div>; page.html includes plotly.js."""
    chart.update_layout(
        template="plotly_white",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        height=360,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    )
    config = {"displaylogo": False, "responsive": True}
    return chart.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config)


def learning(metrics: list[dict[str, Any]]) -> go.Figure:
    """Rewards and shares per step against training time, smoothed over 2 % of the run."""
    chart = go.Figure()
    window = max(1, len(metrics) // 50)
    for i, (key, name) in enumerate(CURVES.items()):
        values = np.array([row.get(key, np.nan) for row in metrics], dtype=float)
        known = np.isfinite(values)
        if known.any():
            values = _smoothed(values[known], window)
            seconds = [metrics[j].get("train_seconds") for j in np.flatnonzero(known)]
            line = {"color": COLOURS[i], "dash": DASHES[i], "width": 2}
            chart.add_scatter(x=seconds, y=values, name=name, mode="lines", line=line)
    suffix = f", mean of {window} steps" if window > 1 else ""
    chart.update_xaxes(title="training time, s", rangemode="tozero")
    chart.update_yaxes(title=f"per step{suffix}")
    return chart


def phases(metrics: list[dict[str, Any]]) -> go.Figure:
    """Cumulative seconds of each phase against the step."""
    chart, steps = go.Figure(), [row.get("step") for row in metrics]
    for i, phase in enumerate(STEP_PHASES):
        seconds = [row.get(f"seconds/{phase}") or 0.0 for row in metrics]
        if any(seconds):
            name, line = f"{phase}: {sum(seconds):.1f} s", {"color": COLOURS[i], "dash": DASHES[i]}
            look = {"name": name, "mode": "lines", "stackgroup": "phases", "line": line}
            chart.add_scatter(x=steps, y=np.cumsum(seconds).tolist(), **look)
    chart.update_xaxes(title="step")
    chart.update_yaxes(title="seconds so far")
    return chart


def accuracy(results: Results) -> go.Figure:
    """Accuracy of every checkpoint by dataset and metric, mean over repeats."""
    chart = go.Figure()
    datasets = sorted({name for checkpoint in results.values() for name in checkpoint.datasets})
    measured = all("train_seconds" in c.meta for c in results.values())
    for i, dataset in enumerate(datasets):
        held = {step: c for step, c in results.items() if dataset in c.datasets}
        for dash, metric, title in (
            ("solid", "both_acc", "right answer and format"),
            ("dot", "ans_acc", "answer"),
        ):
            points = [
                (c.meta["train_seconds"] if measured else step, 100 * np.mean(repeats))
                for step, c in held.items()
                if (repeats := getattr(c.datasets[dataset], metric))
            ]
            x, y = zip(*points, strict=True) if points else ((), ())
            line = {"color": COLOURS[i % len(COLOURS)], "dash": dash}
            chart.add_scatter(x=x, y=y, name=f"{dataset}: {title}", mode="lines+markers", line=line)
    chart.update_xaxes(title="training time, s" if measured else "step", rangemode="tozero")
    chart.update_yaxes(title="accuracy, %")
    return chart


def arms(figure: Figure, series: list[Series]) -> go.Figure:
    """The figure's curves with Student's 95 % interval over runs; single runs below five."""
    chart = go.Figure()
    for i, arm in enumerate(series):
        x, mean, (low, high), runs = drawing.line(figure, arm, "value", "time", 100)
        colour = str(style(i, arm.colour)["color"])
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        chart.add_scatter(x=x, y=high, **edge)
        fill = f"rgba{(*(int(colour[j : j + 2], 16) for j in (1, 3, 5)), 0.2)}"
        chart.add_scatter(x=x, y=low, fill="tonexty", fillcolor=fill, **edge)
        line = {"color": colour, "dash": DASHES[i % len(DASHES)]}
        marker = {"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8}
        look = {"mode": "lines+markers", "line": line, "marker": marker}
        for run in runs if 1 < len(runs) < FEW else []:
            thin = {"color": colour, "width": 0.6}
            chart.add_scatter(x=x, y=run, mode="lines", line=thin, showlegend=False)
        chart.add_scatter(x=x, y=mean, name=arm.title, **look)
    index = "" if all(arm.measured for arm in series) or figure.wandb_export else ", by checkpoint"
    chart.update_xaxes(title=f"training time, {figure.time_unit}{index}", rangemode="tozero")
    chart.update_yaxes(title=metric_name(figure))
    return chart


def _smoothed(values: np.ndarray, window: int) -> list[float]:
    """Trailing mean over `window` values, fewer at the start."""
    counts = np.minimum(np.arange(1, len(values) + 1), window)
    return (np.convolve(values, np.ones(window))[: len(values)] / counts).tolist()
