"""One self-contained HTML page: curves, seconds by phase and rollouts of a run, or several arms.

Curves are SVG of matplotlib. Everything that comes from a run is escaped.
    uv run scripts/report.py run=<run>
"""

import html
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure as Canvas

from pods.clock import STEP_PHASES
from pods.config.errors import UserError
from pods.figures.drawing import COLOURS, STYLE
from pods.figures.tables import Row
from pods.runs import ledger
from pods.runs.folder import read_metrics

Lines = list[dict[str, Any]]  # of metrics.jsonl, one a step
SINGLE = {
    "entropy": "entropy, nats",
    "all/clipped_ratio": "share of completions cut at the limit",
    "all/zero_variance_groups": "share of groups with equal rewards",
}
OF_BOTH = re.compile(r"(all|kept)/(\w+)_mean")  # the n generated, the m kept
CONTROLS = """<div class="controls">
<span><button id="back">&#9664;</button> <label>Step <select id="step">{steps}</select></label>
<button id="on">&#9654;</button></span> <label>Prompt <select id="prompt"></select></label>
<label>Show <select id="show"><option>all</option><option>kept</option><option>dropped</option>
<option>correct</option><option>wrong</option></select></label>
<label>Sort <select id="order"><option value="down">highest reward first</option>
<option value="up">lowest reward first</option><option value="index">by number</option></select>
</label></div><pre id="text"></pre><p>Gold answer: <code id="answer"></code></p>
<p id="count"></p><div id="rollouts"></div>"""


def page(title: str, sections: list[str]) -> str:
    """The whole document, from page.html in one pass: inserted text is not searched."""
    values = {"title": html.escape(title), "sections": "\n".join(sections)}
    template = Path(__file__).with_suffix(".html").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def run_sections(folder: Path, megabytes: float) -> list[str]:
    """Config, curves, seconds and rollouts of a run, as far as its folder has the files."""
    if not folder.is_dir():
        raise UserError(f"run={folder.name}: no folder {folder}; set output_dir to that of the run")
    sections, records = [config_section(folder)], []
    if (folder / "rollouts.jsonl.gz").is_file():
        records = list(ledger.read(folder / "rollouts.jsonl.gz"))
    if (folder / "metrics.jsonl").is_file():
        kept = kept_by_function(records)
        lines = read_metrics(folder / "metrics.jsonl")
        lines = [kept.get(line["step"], {}) | line for line in lines]
        sections += step_sections({folder.name: [lines]})
    return [*sections, rollouts_section(records, 1e6 * megabytes)] if records else sections


def config_section(folder: Path) -> str:
    """What the run was trained with, and on what machine; folded."""
    body = ""
    for path in (folder / ".hydra" / "config.yaml", folder / "meta.json"):
        if path.is_file():
            text = html.escape(path.read_text())
            body += f"<details><summary>{path.name}</summary><pre>{text}</pre></details>"
    return section(f"Run {folder.name}", body)


def arm_sections(arms: dict[str, list[str]], output_dir: Path) -> list[str]:
    """Curves and seconds of arms {label: runs}, of the runs whose folders are on this machine."""
    lines: dict[str, list[Lines]] = {}
    for label, runs in arms.items():
        files = (output_dir / run / "metrics.jsonl" for run in runs)
        lines[label] = [read_metrics(file) for file in files if file.is_file()]
    return step_sections(lines)


def step_sections(arms: dict[str, list[Lines]]) -> list[str]:
    """The curves and the seconds of {label: metric lines of its runs}."""
    arms = {label: runs for label, runs in arms.items() if any(runs)}
    if not arms:
        return []
    return [
        section("Curves", svg(curves(arms)), "full: the n generated, dashed: the m kept"),
        section("Seconds of a step, by phase", table(phase_rows(arms))),
    ]


def kept_by_function(records: Lines) -> dict[int, dict[str, float]]:
    """step -> kept/<function>_mean over the kept rollouts, which the metric lines may lack."""
    values: dict[int, dict[str, list[float]]] = {}
    for record in records:
        for name, rewards in record["rewards"].items():
            of_step = values.setdefault(record["step"], {}).setdefault(f"kept/{name}_mean", [])
            of_step += [rewards[i] for i in record["kept"]]
    return {
        step: {name: fmean(rewards) for name, rewards in names.items() if rewards}
        for step, names in values.items()
    }


def curves(arms: dict[str, list[Lines]]) -> Canvas:
    """A panel for each quantity against training time, a line for each run, smoothed over 2 %."""
    every = [line for runs in arms.values() for lines in runs for line in lines]
    names = dict.fromkeys(key for line in every for key in line)
    panels: dict[str, list[str]] = {}
    for match in filter(None, map(OF_BOTH.fullmatch, names)):
        panels.setdefault(f"{match[2].replace('_', ' ')}, mean", []).append(match[0])
    panels |= {title: [name] for name, title in SINGLE.items() if name in names}
    rows = -(-len(panels) // 3)
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(10.5, 2.6 * rows), layout="constrained")
        grid = canvas.subplots(rows, 3, squeeze=False).ravel()
        for axes, (title, keys) in zip(grid, panels.items(), strict=False):
            for colour, (label, runs) in zip(COLOURS * len(arms), arms.items(), strict=False):
                for lines in runs:
                    for key in keys:
                        dash = "--" if key.startswith("kept/") else "-"
                        axes.plot(*smoothed(lines, key), dash, color=colour, linewidth=1.1)
                axes.plot([], [], color=colour, label=label)
            axes.set_title(title)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        canvas.supxlabel("training time, s", fontsize=9)
        if len(arms) > 1:
            canvas.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return canvas


def smoothed(lines: Lines, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of training, and the trailing mean of a metric over 2 % of the steps."""
    points = [(line["train_seconds"], line[key]) for line in lines if line.get(key) is not None]
    seconds, values = np.array(points, dtype=float).reshape(-1, 2).T
    window = max(1, len(values) // 50)
    counts = np.minimum(np.arange(1, len(values) + 1), window)
    return seconds, np.convolve(values, np.ones(window))[: len(values)] / counts


def phase_rows(arms: dict[str, list[Lines]]) -> list[Row]:
    """Mean seconds of a step by arm and phase."""
    rows = []
    for label, runs in arms.items():
        lines = [line for lines in runs for line in lines]
        means = {
            name: fmean(line.get(f"seconds/{name}", 0.0) for line in lines) for name in STEP_PHASES
        }
        row = {"": label, "steps": f"{len(lines):,}"}
        row |= {name: f"{value:.3g}" for name, value in means.items()}
        rows.append(row | {"step": f"{sum(means.values()):.3g}"})
    return rows


def rollouts_section(records: Lines, most: float) -> str:
    """Every rollout by step and prompt, at most `most` bytes: one JSON block a step."""
    groups: dict[int, list[str]] = {}
    for record in records:
        groups.setdefault(record["step"], []).append(_json(_group(record)))
    sizes = {step: sum(map(len, texts)) for step, texts in sorted(groups.items())}
    newest_first, every = list(sizes)[::-1], 1
    while every < len(sizes) and sum(sizes[step] for step in newest_first[::every]) > most:
        every += 1  # browsers cannot open a page of gigabytes
    shown = newest_first[::every][::-1]
    note = f"{len(shown)} of {len(sizes)} steps are shown, evenly spaced" if every > 1 else ""
    blocks = "\n".join(
        f'<script type="application/json" id="step-{step}">[{",".join(groups[step])}]</script>'
        for step in shown
    )
    options = "".join(f"<option>{step}</option>" for step in shown)
    return section(
        "Rollouts, kept and dropped", CONTROLS.replace("{steps}", options) + blocks, note
    )


def _group(record: dict[str, Any]) -> dict[str, Any]:
    """The rollouts of one prompt, as the page reads them; texts may be absent."""
    correctness = record["rewards"].get("correctness", [])
    return {
        "question": str(record.get("question_id", "")),
        "answer": str(record.get("answer", "")),
        "correct": record.get("correct") or [value > 0 for value in correctness],
        **{key: record[key] for key in ("rewards", "total", "kept")},
        "lengths": record.get("lengths", []),
        **{key: record[key] for key in ("prompt", "completions") if key in record},
    }


def _json(content: Any) -> str:
    """JSON without `<`, so that no text can close its element; JSON reads \\u003c as `<`."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def svg(canvas: Canvas) -> str:
    """The figure as an element of the page, with its text as text."""
    file = io.StringIO()
    with matplotlib.rc_context(STYLE):
        canvas.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def section(title: str, body: str, note: str = "") -> str:
    """body is HTML; title and note are text."""
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{below}{body}</section>"


def table(rows: list[Row]) -> str:
    """An HTML table; the keys of the first row are its head."""

    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row.values(), "td") for row in rows)
    return f'<div class="scroll"><table>{line(rows[0], "th")}{body}</table></div>'
