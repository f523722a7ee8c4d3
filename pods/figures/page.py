"""One self-contained HTML page: curves, seconds by phase and rollouts of a run, or several methods.

page.html escapes everything that comes from a run.
"""

import io
import itertools
import json
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import yaml
from jinja2 import Template
from matplotlib import style
from matplotlib.figure import Figure as Canvas

from pods import files
from pods.clock import STEP_PHASES
from pods.config.errors import UserError
from pods.config.mistakes import nearest
from pods.figures import COLOURS, STYLE
from pods.runs import results

Steps = pandas.DataFrame  # metrics.jsonl, a row a step of a run of a method; or a row a value
PageSection = dict[str, Any]  # what page.html shows of it: title, note, picture, rows, ...
LINE = ["method", "run", "metric"]
SINGLE = {
    **dict.fromkeys(["eval/accuracy", "eval/greedy_accuracy"], "accuracy"),
    **dict.fromkeys(["seconds/generate", "seconds/update"], "seconds of a step"),
    "entropy": "entropy, nats",
    "all/clipped_ratio": "share of clipped completions",
    "all/zero_variance_groups": "share of groups with equal rewards",
}
DASHED = ("kept/", "eval/greedy", "seconds/update")
MEANINGS = {  # of the lines of a chart
    "eval/accuracy": "sampled",
    "eval/greedy_accuracy": "greedy",
    "seconds/generate": "generation",
    "seconds/update": "update",
    "all": "all rollouts",
    "kept": "trained on",
}
POINTS = 2000  # of a line, at most
LARGE = ("accuracy", "reward, mean")  # the first charts
OF_BOTH = re.compile(r"(all|kept)/(\w+)_mean")  # the n generated, the m kept


def page(title: str, sections: list[PageSection]) -> str:
    """The whole document."""
    template = Template(Path(__file__).with_suffix(".html").read_text(), autoescape=True)
    return template.render(title=title, sections=sections)


def run_sections(folder: Path, results_dir: Path, megabytes: float) -> list[PageSection]:
    """Curves, seconds, config and rollouts of a run, as far as its folder has the files."""
    if not folder.is_dir():
        names = nearest(folder.name, sorted(path.name for path in folder.parent.glob("*/")))
        raise UserError(f"run={folder.name}: no folder {folder}; output_dir has {names}")
    sections = step_sections({folder.name: [folder.name]}, folder.parent, results_dir)
    paths = (folder / ".hydra" / "config.yaml", folder / "meta.json")
    texts = [(path.name, path.read_text()) for path in paths if path.is_file()]
    sections.append({"title": "Config and origin", "files": texts})
    path = folder / "rollouts.jsonl.gz"
    if path.is_file():  # the last section: the page shows their viewer at its end
        sections.append(rollouts_section(files.read_lines(path), 1e6 * megabytes))
    return sections


def step_sections(
    methods: dict[str, list[str]], output_dir: Path, results_dir: Path
) -> list[PageSection]:
    """Curves and seconds of methods {label: runs}, of the runs whose folders are on this machine;
    the accuracy at time 0 is the base model's, of results_dir."""
    tables = []
    points = []  # of the curves
    notes: set[str] = set()
    of_curves: set[str] = set()  # further notes
    for label, runs in methods.items():
        for run in runs:
            config = saved_config(output_dir / run)
            clock = config.get("clock")
            if isinstance(clock, dict):
                notes.add(f"Seconds of {run} are priced: {clock['name']}.")
            if config.get("evaluation", {}).get("split") == "validation":
                of_curves.add(f"Accuracy of {run} is of validation questions.")
            table = pandas.DataFrame(files.read_lines(output_dir / run / "metrics.jsonl"))
            tables.append(table.assign(method=label))
            every = -(-len(table) // POINTS)
            if every > 1:  # a browser cannot draw a hundred thousand
                table = table.groupby(table.index // every).mean(numeric_only=True)
                of_curves.add(f"A point of {run} is the mean of {every} steps.")
            table = pandas.concat([pandas.DataFrame(base_scores(config, results_dir)), table])
            points.append(table.assign(method=label, run=run))
    steps = pandas.concat(tables)
    if steps.empty:
        return []
    note = " ".join(sorted(notes))
    drawn = " ".join([note, *sorted(of_curves)])
    return [
        {"title": "Curves", "note": drawn, **charts(pandas.concat(points))},
        {"title": "Seconds of a step, by phase", "note": note, "rows": phase_rows(steps)},
    ]


def saved_config(folder: Path) -> dict[str, Any]:
    """The config of a run, also of an earlier version; {} if it cannot be read."""
    with suppress(OSError, yaml.YAMLError):
        return yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())
    return {}


def base_scores(config: dict[str, Any], results_dir: Path) -> list[dict[str, float]]:
    """A row at time 0 of what evaluate_run.py scored the base model of a run, if it was asked the
    questions of the run in the same way."""
    if "evaluation" not in config:
        return []
    path = results_dir / f"base-{config['model']['name']}.json"
    task, split = config["task"]["name"], config["evaluation"]["split"]
    data = task if split == "test" else f"{task}.{split}"
    settings = (results.read_settings(path).tasks or {}).get(data)
    asked = config["task"] | config["sampling"]
    if settings is None or any(asked.get(key, value) != value for key, value in settings.items()):
        return []
    base = results.read_base(path).datasets
    names = {"eval/accuracy": data, "eval/greedy_accuracy": data + results.GREEDY}
    scores = {key: np.mean(base[name].ans_acc) for key, name in names.items() if name in base}
    return [{"step": 0, "train_seconds": 0.0, **scores}]


def charts(steps: Steps) -> PageSection:
    """A chart for each quantity against training time, accuracy and reward first and large; what
    never changes is a list."""
    values = steps.melt(["method", "run", "step", "train_seconds"], var_name="metric").dropna()
    values["title"] = values["metric"].map(title_of)
    colours = dict(zip(steps["method"].unique(), itertools.cycle(COLOURS), strict=False))
    large: dict[str, str] = {}
    small: list[str] = []
    constant: list[dict[str, str]] = []
    for title, own in values.groupby("title", sort=False):
        if (own.groupby(LINE)["value"].nunique() == 1).all():
            numbers = sorted({f"{value:.4g}" for value in own["value"]})
            constant.append({"quantity": title, "value": ", ".join(numbers)})
        elif title in LARGE:
            large[title] = svg(chart(title, own, colours, (4.4, 2.9)))
        else:
            small.append(svg(chart(title, own, colours, (3.5, 2.6))))
    first = [large[title] for title in LARGE if title in large]
    return {"large": first, "small": small, "constant": constant}


def chart(title: str, values: Steps, colours: dict[str, str], size: Any) -> Canvas:
    """One quantity, a line for each run and metric, smoothed over 2 %; size: inches."""
    with style.context(STYLE):
        canvas = Canvas(figsize=size)
        axes = canvas.subplots()
        axes.set(title=title, xlabel="training time, s")
        for (method, _, metric), line in values.groupby(LINE, sort=False):
            points = line.set_index("train_seconds")["value"]
            # The mean of a fiftieth of the run at each point; a single evaluation is no line.
            smooth = points.rolling(max(1, len(points) // 50), min_periods=1).mean()
            marker = "." if len(points) < 20 else None
            axes.plot(smooth, dashes(metric), marker=marker, color=colours[method], linewidth=1.1)
        low, high = axes.get_ylim()
        if high - low < 0.1 * high:
            axes.set_ylim(0, 1.1 * high)  # a change of a few percent is no cliff
        if len(colours) > 1:
            for method, colour in colours.items():
                axes.plot([], [], color=colour, label=f" {method}")  # the legend leaves out _names
        metrics = values["metric"].unique()
        if len(metrics) > 1:
            for metric in metrics:
                meaning = MEANINGS.get(metric) or MEANINGS[metric.partition("/")[0]]
                axes.plot([], [], dashes(metric), color="0.4", label=meaning)
        if len(axes.get_legend_handles_labels()[1]):
            axes.legend(fontsize=8)
    return canvas


def title_of(metric: str) -> str | None:
    """The title of the chart that shows a metric; None if none does."""
    of_both = OF_BOTH.fullmatch(metric)
    if of_both:
        return f"{of_both[2].replace('_', ' ')}, mean"
    return SINGLE.get(metric)


def dashes(metric: str) -> str:
    """The line style by which two metrics of a chart differ."""
    return "--" if metric.startswith(DASHED) else "-"


def phase_rows(steps: Steps) -> list[dict[str, str]]:
    """Mean seconds of a step by method and phase."""
    rows = []
    methods = steps.rename(columns=lambda name: name.removeprefix("seconds/"))
    for label, own in methods.groupby("method", sort=False):
        means = own.reindex(columns=STEP_PHASES).fillna(0).mean()
        means["step"] = means.sum()
        rows.append({"": label, "steps": f"{len(own):,}", **means.map("{:.3g}".format)})
    return rows


def rollouts_section(records: list[dict[str, Any]], most: float) -> PageSection:
    """Every rollout by step and prompt, at most `most` bytes: one JSON block a step."""
    groups: dict[int, list[str]] = defaultdict(list)
    for record in records:
        text = json.dumps(record, separators=(",", ":"))
        text = text.replace("<", "\\u003c")  # closes no element
        groups[record["step"]].append(text)
    newest_first = [
        (step, f"[{','.join(texts)}]") for step, texts in sorted(groups.items(), reverse=True)
    ]
    count = len(newest_first)
    every = 1
    while every < count and sum(len(text) for _, text in newest_first[::every]) > most:
        every += 1  # browsers cannot open a page of gigabytes
    shown = newest_first[::every][::-1]
    note = f"{len(shown)} of {count} steps are shown, evenly spaced" if every > 1 else ""
    return {"title": "Rollouts, kept and dropped", "note": note, "steps": shown}


def svg(canvas: Canvas) -> str:
    """The figure as an element of the page, with its text as text."""
    file = io.StringIO()
    with style.context(STYLE):
        canvas.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
