"""One self-contained HTML page: curves, seconds by phase and rollouts of a run.

page.html escapes everything that comes from a run.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from jinja2 import Template

from pods import files
from pods.clock import STEP_PHASES
from pods.config.command import load_config
from pods.config.keys import TrainConfig
from pods.figures import drawing
from pods.files import JsonObject
from pods.runs import results

PageSection = dict[str, Any]  # what page.html shows of it: title, note, picture, rows, ...
POINTS = 500  # of a run, at most


def page(title: str, sections: list[PageSection]) -> str:
    """The whole document."""
    template = Template(Path(__file__).with_suffix(".html").read_text(), autoescape=True)
    return template.render(title=title, sections=sections)


def run_sections(folder: Path, results_dir: Path, megabytes: float) -> list[PageSection]:
    """Curves, seconds, config and rollouts of a run, as far as its folder has the files."""
    sections = step_sections(folder, results_dir)
    paths = (folder / ".hydra" / "config.yaml", folder / "meta.json")
    texts = [(path.name, path.read_text()) for path in paths if path.is_file()]
    sections.append({"title": "Config and origin", "files": texts})
    path = folder / "rollouts.jsonl.gz"
    if path.is_file():  # the last section: the page shows their viewer at its end
        sections.append(rollouts_section(lambda: files.stream_lines(path), 1e6 * megabytes))
    return sections


def step_sections(folder: Path, results_dir: Path) -> list[PageSection]:
    """Curves and seconds of a run; the accuracy at time 0 is the base model's, of results_dir."""
    config = load_config(folder / ".hydra" / "config.yaml")
    steps = table_of(files.stream_lines(folder / "metrics.jsonl"))
    if steps.empty:
        return []
    note = "" if config.clock == "measured" else f"Seconds are priced: {config.clock.name}."
    notes = [note]  # of the curves
    if config.evaluation.split == "validation":
        notes.append("Accuracy is of validation questions.")
    points = steps
    every = -(-len(steps) // POINTS)
    if every > 1:  # smooth, and few enough for a browser
        points = steps.groupby(steps.index // every).mean(numeric_only=True)
        notes.append(f"A point is the mean of {every} steps.")
    points = pandas.concat([pandas.DataFrame(base_scores(config, results_dir)), points])
    picture = drawing.svg(drawing.training_figure(points))
    return [
        {"title": "Curves", "note": " ".join(notes), "picture": picture},
        {"title": "Seconds of a step, by phase", "note": note, "rows": [phase_row(steps)]},
    ]


def table_of(records: Iterator[JsonObject]) -> pandas.DataFrame:
    """A row for each record. A record takes ten times the memory of its row, so that only some of
    them are held at once."""
    tables = [pandas.DataFrame()]
    while rows := list(islice(records, 1000)):
        tables.append(pandas.DataFrame(rows))
    return pandas.concat(tables, ignore_index=True)


def base_scores(config: TrainConfig, results_dir: Path) -> list[dict[str, float]]:
    """The base model's scores as a row at time 0, if evaluate_run.py asked it the questions of this
    run with its settings."""
    task, split = config.task.name, config.evaluation.split
    data = task if split == "test" else f"{task}.{split}"
    asked = config.task.model_dump() | config.sampling.model_dump()
    if task == "own":  # one name for all data sets: that of the run's scores
        scored = results.read_settings(results_dir / f"{config.run}.json").tasks or {}
        asked["digest"] = scored.get(data, {}).get("digest")
    for path in results.base_files(results_dir, f"base-{config.model.name}"):
        settings = (results.read_settings(path).tasks or {}).get(data)
        if settings and all(asked.get(key, value) == value for key, value in settings.items()):
            base = results.read_base(path).datasets
            names = {"eval/accuracy": data, "eval/greedy_accuracy": data + results.GREEDY}
            scores = {
                key: np.mean(base[name].ans_acc) for key, name in names.items() if name in base
            }
            return [{"step": 0, "train_seconds": 0.0, **scores}]
    return []


def phase_row(steps: pandas.DataFrame) -> dict[str, str]:
    """Mean seconds of a step by phase. steps: a row for each line of metrics.jsonl."""
    phases = steps.rename(columns=lambda name: name.removeprefix("seconds/"))
    means = phases.reindex(columns=STEP_PHASES).fillna(0).mean()
    means["step"] = means.sum()
    return {"steps": f"{len(steps):,}", **means.map("{:.3g}".format)}


def rollouts_section(read: Callable[[], Iterable[JsonObject]], most: float) -> PageSection:
    """Every rollout by step and prompt, at most `most` bytes: one JSON block a step. read: gives
    the records, twice: a log may be larger than the memory."""
    sizes: dict[int, int] = defaultdict(lambda: 1)  # of the blocks, with their brackets
    for record in read():
        sizes[record["step"]] += len(block_of(record)) + 1
    newest_first = sorted(sizes, reverse=True)
    every = 1
    # browsers cannot open a page of gigabytes
    while every < len(sizes) and sum(sizes[step] for step in newest_first[::every]) > most:
        every += 1
    shown: dict[int, list[str]] = {step: [] for step in newest_first[::every][::-1]}
    for record in read():
        if record["step"] in shown:
            shown[record["step"]].append(block_of(record))
    steps = [(step, f"[{','.join(blocks)}]") for step, blocks in shown.items()]
    note = f"{len(shown)} of {len(sizes)} steps are shown, evenly spaced" if every > 1 else ""
    return {"title": "Rollouts, kept and dropped", "note": note, "steps": steps}


def block_of(record: JsonObject) -> str:
    """A record as JSON in a page."""
    return json.dumps(record, separators=(",", ":")).replace("<", "\\u003c")  # closes no element
