"""results/<run>.json: accuracy of every checkpoint, in the schema of the paper's published results.

    {"checkpoint-<step>": {"<dataset>": {"ans_acc": [r], "for_acc": [r], "both_acc": [r],
                                         "lengths": [r], "examples": [...]}, "meta": {...}}}

r = repeats; lengths are mean completion tokens; base-<model>.json has no checkpoint level. `meta`
is ours (train_seconds, tokens, `"pass@k": {"<dataset>": {"<k>": fraction}}` ...): the published
reader looks datasets up by name and never meets it.
Used by `uv run evaluate_run.py` (writes) and `uv run scripts/plot.py` (reads).
"""

import json
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pods.config.errors import UserError
from pods.files import write_atomic

META = "meta"


@dataclass
class Entry:
    """One checkpoint on one dataset: one number per repeat, and a few completions to look at."""

    ans_acc: list[float] = field(default_factory=list)
    for_acc: list[float] = field(default_factory=list)
    both_acc: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Checkpoint:
    """All datasets of one checkpoint, and the measurements in its `meta`."""

    datasets: dict[str, Entry] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)


Results = dict[int, Checkpoint]  # step -> checkpoint, in ascending order of steps


def read(path: Path | str) -> Results:
    """Every checkpoint of a run. Raises UserError when the file is another or half of one."""
    steps = {}
    for key, value in _object(path).items():
        match = re.fullmatch(r"checkpoint-(\d+)", key)
        if not match or not isinstance(value, dict):
            raise UserError(
                f"{path}: top-level key '{key}' is not checkpoint-<step> with an object;"
                " base files have no such level, read them with read_base"
            )
        steps[int(match[1])] = _checkpoint(path, value)
    return dict(sorted(steps.items()))


def write(path: Path | str, results: Results) -> None:
    """Replace the file by `results` atomically. Raises ValueError on NaN and infinity."""
    content = {
        f"checkpoint-{step}": asdict(results[step])["datasets"]
        | ({META: results[step].meta} if results[step].meta else {})
        for step in sorted(results)
    }
    write_atomic(path, json.dumps(content, indent=1, allow_nan=False))


def read_base(path: Path | str) -> Checkpoint:
    """The base model's scores: datasets at the top level, no checkpoints."""
    content = _object(path)
    if any(key.startswith("checkpoint-") for key in content):
        raise UserError(
            f"{path}: has checkpoint-<step> keys, a base file has none; read it with read"
        )
    return _checkpoint(path, content)


def write_base(path: Path | str, base: Checkpoint) -> None:
    """As `write`, without the checkpoint level and without meta: that level is for datasets."""
    write_atomic(path, json.dumps(asdict(base)["datasets"], indent=1, allow_nan=False))


def facts_path(path: Path | str) -> Path:
    """results/<run>.json -> results/<run>.meta.json: config, seed and versions of the run."""
    return Path(path).with_suffix(".meta.json")


def facts_of(path: Path) -> dict[str, Any]:
    """The JSON object in a fact file; {} without a readable one."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def run_order(name: str) -> list[tuple[int, int | str]]:
    """Sort key under which Run10 follows Run9: digits compare as numbers."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def find(results_dir: Path | str, patterns: list[str]) -> list[Path]:
    """Result files whose run name matches any of the shell patterns, Run10 after Run9."""
    folder = Path(results_dir)
    found = {path for pattern in patterns for path in folder.glob(f"{pattern}.json")}
    runs = (path for path in found if not path.name.endswith(".meta.json"))
    return sorted(runs, key=lambda path: run_order(path.stem))


def warn(message: str) -> None:
    """One line on stderr: stdout is for results."""
    print(f"warning: {message}", file=sys.stderr)


def _object(path: Path | str) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; evaluate_run.py writes it") from None
    except (ValueError, RecursionError) as error:
        problem = f"not readable as JSON ({error}); delete it and evaluate again"
        raise UserError(f"{path}: {problem}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds a {type(content).__name__}, needs an object of checkpoints")
    return content


def _checkpoint(path: Path | str, content: dict[str, Any]) -> Checkpoint:
    found, names = Checkpoint(), Entry.__dataclass_fields__
    if isinstance(content.get(META), dict):
        found.meta = content[META]
    for dataset, entry in content.items():
        if dataset == META:
            continue
        known = {k: entry[k] for k in names if k in entry} if isinstance(entry, dict) else {"": 0}
        if not all(isinstance(value, list) for value in known.values()):
            listed = ", ".join(names)
            raise UserError(f"{path}: dataset '{dataset}' is not an object of lists ({listed})")
        found.datasets[dataset] = Entry(**known)
    return found
