"""The report of benchmarks/gpu_proof.py as one JSON file and one HTML page."""

import html
import json
from datetime import date
from pathlib import Path
from typing import Any

from pods.figures.page import table
from pods.runs.files import write_atomic

STYLE = "body{font-family:sans-serif;margin:2em}td,th{border:1px solid #ccc;padding:2px 6px}"
STYLE += ".scroll{overflow-x:auto}"
KINDS = {"engine": "Engines", "training": "Training", "": "Seconds and memory of a step"}


def write_report(folder: Path, parts: dict[str, dict[str, Any]]) -> Path:
    """Write report.json and report.html; returns the page's path."""
    device, today = parts["card"].get("device", "an unknown device"), date.today().isoformat()
    title = f"PODS on {device}, {today}"
    content = {"title": title, "date": today, "parts": parts}
    write_atomic(folder / "report.json", json.dumps(content, indent=1))
    sections = [_section("Parts", table([_verdict(*item) for item in parts.items()]))]
    rows = {name: found["row"] for name, found in parts.items() if "row" in found}
    for start, heading in KINDS.items():
        mine = [name for name in rows if name.startswith(start)]
        if mine:
            shown = [
                {"arm": name} | {k: _text(v) for k, v in rows.pop(name).items()} for name in mine
            ]
            sections.append(_section(heading, table(shown)))
    for name in ("planner", "card", "doctor"):
        if name in parts:
            text = parts[name].get("text") or json.dumps(parts[name], indent=1)
            sections.append(_section(name, f"<pre>{html.escape(text)}</pre>"))
    head = f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>"
    body = f"<title>{html.escape(title)}</title><h1>{html.escape(title)}</h1>{''.join(sections)}"
    write_atomic(folder / "report.html", head + body)
    return folder / "report.html"


def _section(title: str, body: str) -> str:
    return f"<h2>{html.escape(title)}</h2>{body}"


def _verdict(name: str, found: dict[str, Any]) -> dict[str, str]:
    seconds = f"{found['wall_seconds']:g}"
    return {"part": name, "verdict": found["error"] or "done", "wall time, s": seconds}


def _text(value: str | float | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.3g}"
