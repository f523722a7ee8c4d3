"""One self-contained HTML page about a run or a figure: it loads nothing from the network.

Everything that comes from a run is escaped; the JSON of completions holds no character `<`.
    uv run scripts/report.py run=<run>
"""

import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from plotly.offline import get_plotlyjs

from pods.config.errors import UserError
from pods.figures import charts, drawing, inspector, several, tables
from pods.figures.curves import Series
from pods.figures.definition import Figure
from pods.figures.speedup import Speedup
from pods.figures.tables import duration
from pods.runs.folder import read_metrics
from pods.runs.results import facts_of, read, warn

PARTS = Path(__file__).with_name("page")


def page(title: str, subtitle: str, sections: list[str]) -> str:
    """The whole document."""
    return _filled(
        "page.html",
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        style=(PARTS / "style.css").read_text(),
        script=(PARTS / "inspector.js").read_text(),
        plotly=get_plotlyjs(),
        sections="\n".join(sections),
    )


def run_sections(run: str, output_dir: Path, results_dir: Path, megabytes: float) -> list[str]:
    """Card, learning curves, phases, accuracy and rollouts of a run, as far as it has the files."""
    folder, scores = output_dir / run, results_dir / f"{run}.json"
    if not folder.is_dir() and not scores.is_file():
        raise UserError(
            f"run={run}: neither {folder} nor {scores} exists; set output_dir and results_dir to"
            " the folders of runs and results"
        )
    config, path = _config(folder), folder / "metrics.jsonl"
    metrics = read_metrics(path) if path.is_file() else []
    sections = [card(run, config, facts_of(folder / "meta.json"), metrics)]
    if metrics:
        sections.append(_chart("Learning curves", charts.learning(metrics), "learning"))
        sections.append(_chart("Time per phase", charts.phases(metrics), "phases"))
    if scores.is_file():
        sections.append(_chart("Accuracy", charts.accuracy(read(scores)), "accuracy"))
    if (folder / "rollouts.jsonl.gz").is_file():
        from pods.runs import ledger

        rule = OmegaConf.select(config, "rule.name") or ""
        records = ledger.read(folder / "rollouts.jsonl.gz")
        sections.append(rollouts(records, rule, 1e6 * megabytes))
    elif folder.is_dir():
        warn(f"{run}: no rollouts.jsonl.gz; the page has no rollout inspector")
    return sections


def figure_sections(
    figure: Figure, series: list[Series], pairs: list[Speedup], output_dir: Path
) -> list[str]:
    """The curves of a figure, all its comparisons, and what the run folders add."""
    comparisons, arms = [], {arm.label: arm for arm in series}
    for title, note, row in tables.TABLES if pairs else ():
        rows = [row(figure.name, pair) for pair in pairs]
        comparisons.append(_section(title, table(rows) + _copies(rows), note))
    if spent := several.phases(series, output_dir):
        comparisons.append(_section("Seconds of a step", table(spent) + _copies(spent)))
    for pair in pairs:
        first, second = arms[pair.baseline], arms[pair.pods]
        if rows := several.differences(first, second, output_dir):
            title = f"Where {second.label} and {first.label} differ"
            note = "The same questions in the same step, with the same random numbers."
            comparisons.append(_section(title, table(rows), note))
    runs = [{"arm": arm.label, "runs": ", ".join(arm.runs)} for arm in series]
    return [
        _chart(figure.title, charts.arms(figure, series), "arms", drawing.band_name(series, "t")),
        *comparisons,
        _section("Runs", table(runs)),
    ]


def card(run: str, config: Any, meta: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
    """The facts about a run: config, seed, versions, commit, hardware, budget and its use."""
    last = metrics[-1] if metrics else {}
    keys = (
        "experiment", "algorithm.name", "rule.name", "rollouts_per_prompt", "kept_per_prompt",
        "prompts_per_step", "seed", "task.name", "rewards.version", "model.name", "backend.name",
        "budget.train_seconds", "max_steps",
    )  # fmt: skip
    facts = {key.removesuffix(".name"): OmegaConf.select(config, key) for key in keys}
    facts["steps done"] = last.get("step")
    if "train_seconds" in last:
        facts["trained for"] = duration(last["train_seconds"] / 3600)
    for kind in ("generated", "trained"):
        if f"tokens/{kind}" in last:
            facts[f"tokens {kind}"] = f"{last[f'tokens/{kind}']:,.0f}"
    facts |= {"git commit": meta.get("git_commit"), "config hash": meta.get("config_hash")}
    cores = f"{meta['cpu_count']} CPU cores" if "cpu_count" in meta else None
    facts |= {"hardware": meta.get("gpu") or cores, "host": meta.get("host")}
    facts["versions"] = ", ".join(f"{k} {v}" for k, v in meta.get("versions", {}).items())
    cells = "".join(
        f"<div><b>{html.escape(name)}</b>{html.escape(str(value))}</div>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    text = html.escape(OmegaConf.to_yaml(config)) if config else ""
    whole = f"<details><summary>Whole config</summary><pre>{text}</pre></details>" if text else ""
    return _section(f"Run {run}", f'<div class="card">{cells}</div>{whole}')


def rollouts(records: Iterable[dict[str, Any]], rule: str, most: float) -> str:
    """The inspector with its data, at most `most` bytes: one JSON block per step, parsed when the
    step is shown."""
    by_step, left_out = inspector.steps(records, rule, most)
    if not by_step:
        return _section("Rollouts", "", "the ledger is empty")
    size = sum(len(one["total"]) for groups in by_step.values() for one in groups)
    note = f"{size} rollouts of {len(by_step)} steps, rule {rule}. {left_out}"
    if any(one["completions"] is None for groups in by_step.values() for one in groups):
        note += " Some have no text: train with ledger.texts=all."
    blocks = [_block("steps", list(by_step))]
    blocks += [_block(f"step-{step}", groups) for step, groups in by_step.items()]
    return _filled("inspector.html", note=html.escape(note), data="\n".join(blocks))


def _block(name: str, content: Any) -> str:
    # Without `<` no text can close the element; JSON reads \\u003c as `<`.
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _filled(part: str, **values: str) -> str:
    """The template with its {{names}} replaced in one pass: inserted text is not searched."""
    template = (PARTS / part).read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def _section(title: str, body: str, note: str = "") -> str:
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{below}{body}</section>"


def _copies(rows: list[dict[str, str]]) -> str:
    """Buttons that copy the table."""
    return "".join(
        f'<button class="copy" data-text="{html.escape(write(rows))}">Copy {name}</button>'
        for name, write in (("Markdown", tables.markdown), ("LaTeX", tables.latex))
    )


def _chart(title: str, chart: Any, name: str, note: str = "") -> str:
    return _section(title, charts.html(chart, name), note)


def table(rows: list[dict[str, str]]) -> str:
    """An HTML table; the keys of the first row are its head."""

    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row.values(), "td") for row in rows)
    return f'<div class="scroll"><table>{line(rows[0], "th")}{body}</table></div>'


def _config(folder: Path) -> Any:
    try:
        return OmegaConf.load(folder / ".hydra" / "config.yaml")
    except (OSError, OmegaConfBaseException, ValueError):
        return OmegaConf.create({})
