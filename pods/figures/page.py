"""One self-contained HTML page: curves, seconds by phase and rollouts of a run, or several arms.

Everything that comes from a run is escaped.
"""

import html
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from pods import files
from pods.clock import STEP_PHASES
from pods.config.errors import UserError
from pods.config.mistakes import nearest
from pods.figures import COLOURS, STYLE

Steps = pandas.DataFrame  # metrics.jsonl, a row a step
SINGLE = {
    **dict.fromkeys(["eval/accuracy", "eval/greedy_accuracy"], "accuracy"),
    **dict.fromkeys(["seconds/generate", "seconds/update"], "seconds of a step"),
    "entropy": "entropy, nats",
    "all/clipped_ratio": "share of clipped completions",
    "all/zero_variance_groups": "share of groups with equal rewards",
}
DASHED = ("kept/", "eval/greedy", "seconds/update")
OF_BOTH = re.compile(r"(all|kept)/(\w+)_mean")  # the n generated, the m kept
OF_GROUP = ("question_id", "answer", "rewards", "total", "kept", "lengths", "prompt", "completions")


def page(title: str, sections: list[str]) -> str:
    """The whole document, from page.html in one pass: inserted text is not searched."""
    values = {"title": html.escape(title), "sections": "\n".join(sections)}
    template = Path(__file__).with_suffix(".html").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def run_sections(folder: Path, megabytes: float) -> list[str]:
    """Config, curves, seconds and rollouts of a run, as far as its folder has the files."""
    if not folder.is_dir():
        names = nearest(folder.name, sorted(path.name for path in folder.parent.glob("*/")))
        raise UserError(f"run={folder.name}: no folder {folder}; output_dir has {names}")
    facts = ""
    for path in (folder / ".hydra" / "config.yaml", folder / "meta.json"):
        if path.is_file():
            text = html.escape(path.read_text())
            facts += f"<details><summary>{path.name}</summary><pre>{text}</pre></details>"
    sections = [section(f"Run {folder.name}", facts)]
    sections += step_sections({folder.name: [folder.name]}, folder.parent)
    path = folder / "rollouts.jsonl.gz"
    if path.is_file():
        sections.append(rollouts_section(files.read_lines(path), 1e6 * megabytes))
    return sections


def step_sections(arms: dict[str, list[str]], output_dir: Path) -> list[str]:
    """Curves and seconds of arms {label: runs}, of the runs whose folders are on this machine."""
    steps: dict[str, list[Steps]] = defaultdict(list)
    for label, runs in arms.items():
        for run in runs:
            lines = files.read_lines(output_dir / run / "metrics.jsonl")
            if lines:
                steps[label].append(pandas.DataFrame(lines))
    if not steps:
        return []
    return [
        section("Curves", svg(curves(steps)), "n, sampled, generate; dashed: m, greedy, update"),
        section("Seconds of a step, by phase", table(phase_rows(steps))),
    ]


def curves(arms: dict[str, list[Steps]]) -> Canvas:
    """A panel for each quantity against training time, a line for each run, smoothed over 2 %."""
    panels = panels_of(name for runs in arms.values() for run in runs for name in run)
    rows = -(-len(panels) // 3)
    with style.context(STYLE):
        canvas = Canvas(figsize=(10.5, 2.6 * rows), layout="constrained")
        for place, (title, names) in enumerate(panels.items(), 1):
            axes = canvas.add_subplot(rows, 3, place, title=title)
            for colour, (label, runs) in zip(COLOURS * len(arms), arms.items(), strict=False):
                for run in runs:
                    for name in names:
                        if name in run:
                            plot_metric(axes, run.set_index("train_seconds")[name], colour)
                axes.plot([], [], color=colour, label=label)
        canvas.supxlabel("training time, s", fontsize=9)
        if len(arms) > 1:
            canvas.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return canvas


def panels_of(metrics: Iterable[str]) -> dict[str, list[str]]:
    """title -> metrics that share a panel, in the order of their first appearance."""
    panels: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(metrics):
        of_both = OF_BOTH.fullmatch(name)
        if of_both:
            panels[f"{of_both[2].replace('_', ' ')}, mean"].append(name)
        elif name in SINGLE:
            panels[SINGLE[name]].append(name)
    return panels


def plot_metric(axes: Axes, values: pandas.Series, colour: str) -> None:
    """A line over the seconds of training, the mean of a fiftieth of the run at each point."""
    values = values.dropna()
    smooth = values.rolling(max(1, len(values) // 50), min_periods=1).mean()
    line = "--" if values.name.startswith(DASHED) else "-"
    if len(values) < 20:  # one evaluation is no line
        line = "." + line
    axes.plot(smooth.index, smooth, line, color=colour, linewidth=1.1)


def phase_rows(arms: dict[str, list[Steps]]) -> list[dict[str, str]]:
    """Mean seconds of a step by arm and phase."""
    rows = []
    for label, runs in arms.items():
        steps = pandas.concat(runs).rename(columns=lambda name: name.removeprefix("seconds/"))
        means = steps.reindex(columns=STEP_PHASES).fillna(0).mean()
        means["step"] = means.sum()
        rows.append({"": label, "steps": f"{len(steps):,}", **means.map("{:.3g}".format)})
    return rows


def rollouts_section(records: list[dict[str, Any]], most: float) -> str:
    """Every rollout by step and prompt, at most `most` bytes: one JSON block a step."""
    groups: dict[int, list[str]] = defaultdict(list)
    for record in records:
        group = {key: record[key] for key in OF_GROUP if key in record}  # it may have no texts
        group["correct"] = [value > 0 for value in record["rewards"].get("correctness", [])]
        text = json.dumps(group, separators=(",", ":")).replace("<", "\\u003c")  # closes no element
        groups[record["step"]].append(text)
    newest_first = [
        f'<script type="application/json" id="step-{step}">[{",".join(texts)}]</script>'
        for step, texts in sorted(groups.items(), reverse=True)
    ]
    count = len(newest_first)
    every = 1
    while every < count and sum(map(len, newest_first[::every])) > most:
        every += 1  # browsers cannot open a page of gigabytes
    shown = newest_first[::every][::-1]
    note = f"{len(shown)} of {count} steps are shown, evenly spaced" if every > 1 else ""
    return section("Rollouts, kept and dropped", "\n".join(shown), note)


def svg(canvas: Canvas) -> str:
    """The figure as an element of the page, with its text as text."""
    file = io.StringIO()
    with style.context(STYLE):
        canvas.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def section(title: str, body: str, note: str = "") -> str:
    """body is HTML; title and note are text."""
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{below}{body}</section>"


def table(rows: list[dict[str, str]]) -> str:
    """An HTML table; the keys of the first row are its head."""
    with pandas.option_context("display.max_colwidth", None):
        return f'<div class="scroll">{pandas.DataFrame(rows).to_html(index=False, border=0)}</div>'
