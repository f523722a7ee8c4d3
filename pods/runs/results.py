"""results/<run>.json: accuracy of every checkpoint, in the schema of the paper's published results.

    {"checkpoint-<step>": {"<dataset>": {"ans_acc": [r], "for_acc": [r], "both_acc": [r],
                                         "lengths": [r], "examples": [...]}, "meta": {...}}}

r = repeats, 1 in <dataset>.greedy; lengths are mean completion tokens; base-<model>.json has no
checkpoint level. `meta` is ours: the published reader looks datasets up by name and never meets it.
"""

import json
import re
from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SkipValidation, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from pods.config.errors import UserError
from pods.files import JsonObject, write_atomic

META = "meta"
GREEDY = ".greedy"  # ends the name of a data set that is scored by greedy completions
Numbers = list[SkipValidation[float]]  # of other programs: any of them may be null


@dataclass
class Entry:
    """One checkpoint on one dataset: one number per repeat, and a few completions to look at."""

    ans_acc: Numbers = field(default_factory=list)
    for_acc: Numbers = field(default_factory=list)
    both_acc: Numbers = field(default_factory=list)
    lengths: Numbers = field(default_factory=list)
    examples: list[SkipValidation[dict[str, Any]]] = field(default_factory=list)


@dataclass
class Scores:
    """Of one checkpoint: all datasets, and the measurements in its `meta`."""

    datasets: dict[str, Entry] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)


def _divided(content: Any) -> Any:
    """The keys of a checkpoint's object as fields; another type is refused later."""
    if not isinstance(content, dict):
        return content
    datasets = {name: entry for name, entry in content.items() if name != META}
    return {"datasets": datasets, "meta": content.get(META, {})}


Scored = Annotated[Scores, BeforeValidator(_divided)]
Results = dict[int, Scores]  # by step, in ascending order


def read(path: Path | str) -> Results:
    """Every checkpoint of a run. Raises UserError when the file is another or half of one."""
    by_name = _parsed(path, dict[Annotated[str, Field(pattern=r"^checkpoint-\d+$")], Scored])
    by_step = {int(name.removeprefix("checkpoint-")): scores for name, scores in by_name.items()}
    return dict(sorted(by_step.items()))


def write(path: Path, results: Results | Scores) -> None:
    """Replace the file atomically; Scores: of a base model. ValueError on NaN and infinity."""
    if isinstance(results, Scores):
        content = asdict(results)["datasets"]
    else:
        content = {}
        for step, scores in sorted(results.items()):
            checkpoint = asdict(scores)["datasets"]
            if scores.meta:
                checkpoint[META] = scores.meta
            content[f"checkpoint-{step}"] = checkpoint
    write_atomic(path, json.dumps(content, indent=1, allow_nan=False))


def read_base(path: Path | str) -> Scores:
    """The base model's scores: datasets at the top level, no checkpoints."""
    base = _parsed(path, Scored)
    if any(key.startswith("checkpoint-") for key in base.datasets):
        raise UserError(f"{path}: has checkpoint-<step> keys, and a base file has none")
    return base


def facts_of(path: Path) -> JsonObject:
    """The JSON object in a file of facts (results/<run>.meta.json); {} without a readable one."""
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
    paths: set[Path] = set()  # a run may match two patterns
    for pattern in patterns:
        paths.update(Path(results_dir).glob(f"{pattern}.json"))
    runs = [path for path in paths if not path.name.endswith(".meta.json")]
    return sorted(runs, key=lambda path: run_order(path.stem))


def _parsed(path: Path | str, schema: Any) -> Any:
    """The content of a file as an instance of `schema`."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return TypeAdapter(schema).validate_python(content)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; evaluate_run.py writes it") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "content"
        raise UserError(
            f"{path}: {place}: {first['msg']}; restore it, or delete it and evaluate again"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: not readable as JSON ({error}); restore it, or delete it and evaluate again"
        ) from error
