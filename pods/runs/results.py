"""results/<run>.json: accuracy of every checkpoint, in the schema of the paper's published results.

    {"checkpoint-<step>": {"<dataset>": {"ans_acc": [r], "for_acc": [r], "both_acc": [r],
                                         "lengths": [r], "examples": [...]}, "meta": {...}}}

r = repeats, 1 in <dataset>.greedy; lengths are mean completion tokens; base-<model>.json has no
checkpoint level. `meta` is ours: the published reader looks datasets up by name and never meets it.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, WrapValidator
from typing_extensions import TypedDict

from pods.config.errors import UserError
from pods.config.paths import runs_of
from pods.files import JsonObject, write_atomic

META = "meta"
GREEDY = ".greedy"  # ends the name of a data set that is scored by greedy completions


def accuracy(value: object) -> object:
    """An accuracy of a file, which another program may have written: null is none. ValueError for a
    number outside 0..1."""
    if isinstance(value, int | float) and (value < 0 or value > 1):
        raise ValueError(f"{value!s:.20} is no accuracy, which lies between 0 and 1")
    return value


Numbers = list[Any]  # of other programs: any of them may be null
Accuracy = Annotated[Any, AfterValidator(accuracy)]


def unchanged(value: Any, validate: Any) -> Any:
    """The value itself once it is valid: a TypedDict would drop the keys that it does not name."""
    validate(value)
    return value


class DatasetScores(TypedDict, total=False):
    """Our details of a checkpoint on one dataset; more is in them."""

    rewards: dict[str, Any]  # by grader


# What a figure reads of a checkpoint's meta; more is in it.
Measured = TypedDict(
    "Measured",
    {"scores": dict[str, DatasetScores], "pass@k": dict[str, dict[str, Accuracy]]},
    total=False,
)


class Entry(BaseModel):
    """One checkpoint on one dataset: one number per repeat, and a few completions to look at."""

    ans_acc: list[Accuracy] = []
    for_acc: list[Accuracy] = []
    both_acc: list[Accuracy] = []
    lengths: Numbers = []
    examples: list[Any] = []


class Scores(BaseModel, extra="allow"):
    """Of one checkpoint: the measurements in its `meta`, and a field for each dataset."""

    meta: Annotated[Measured, WrapValidator(unchanged)] = {}
    __pydantic_extra__: dict[str, Entry]

    @property
    def datasets(self) -> dict[str, Entry]:
        return self.__pydantic_extra__


class Published(BaseModel):
    """The times of a published run, as scripts/import_published.py writes them."""

    by_index: bool = False  # train_seconds are those of a grid; else they were measured
    reach: float = 0.0  # s; the longest pause between its samples


class Settings(BaseModel, extra="allow"):
    """What results/<run>.meta.json says of an evaluation and its training; more is in it."""

    published: Published | None = None
    tasks: dict[str, dict[str, Any]] | None = None
    train: dict[str, Any] | None = None
    git_commit: Any = None
    details: Measured | None = None


Results = dict[int, Scores]  # by step, in ascending order


def read(path: Path | str) -> Results:
    """Every checkpoint of a run. Raises UserError when the file is another or half of one."""
    by_name = _parsed(path, dict[Annotated[str, Field(pattern=r"^checkpoint-\d{1,15}$")], Scores])
    by_step = {int(name.removeprefix("checkpoint-")): scores for name, scores in by_name.items()}
    return dict(sorted(by_step.items()))


def write(path: Path, results: Results | Scores) -> None:
    """Replace the file atomically; Scores: of a base model. ValueError on NaN and infinity."""
    if isinstance(results, Scores):
        content = results.model_dump(exclude={META})
    else:
        content = {}
        for step, scores in sorted(results.items()):
            checkpoint = scores.model_dump()
            meta = checkpoint.pop(META)
            content[f"checkpoint-{step}"] = checkpoint | ({META: meta} if meta else {})
    write_atomic(path, json.dumps(content, indent=1, allow_nan=False))


def read_base(path: Path | str) -> Scores:
    """The base model's scores: datasets at the top level, no checkpoints."""
    base = _parsed(path, Scores)
    if any(key.startswith("checkpoint-") for key in base.datasets):
        raise UserError(f"{path}: has checkpoint-<step> keys, and a base file has none")
    return base


def facts_of(path: Path) -> JsonObject:
    """The JSON object in a file of facts (results/<run>.meta.json); {} without a readable one."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def read_settings(path: Path) -> Settings:
    """The facts beside a file of results. Raises UserError if the file holds something else."""
    facts = path.with_suffix(".meta.json")
    return _parsed(facts, Settings) if facts.exists() else Settings()


def run_order(name: str) -> list[tuple[int, int | str]]:
    """Sort key under which Run10 follows Run9: digits compare as numbers."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def base_files(results_dir: Path | str, pattern: str) -> list[Path]:
    """The files of a base model: of one name, a file for each kind of settings."""
    return find(results_dir, [pattern]) + find(results_dir, [f"{pattern}+[0-9]*"])


def find(results_dir: Path | str, patterns: list[str]) -> list[Path]:
    """Result files whose run name matches any of the shell patterns, or of the runs of a sweep by
    its folder, Run10 after Run9. Raises UserError for another folder."""
    paths: set[Path] = set()  # a run may match two patterns
    for pattern in patterns:
        names = runs_of(Path(pattern))
        if "/" in pattern and not names:
            raise UserError(
                f"{pattern}: is no folder of a sweep, which has runs.txt; train.py -m prints its "
                "folder at the end; runs are given by their names, without a folder"
            )
        for name in names or [pattern]:
            paths.update(Path(results_dir).glob(f"{name}.json"))
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
        location = ".".join(str(part)[:40] for part in first["loc"]) or "content"
        raise UserError(
            f"{path}: {location}: {first['msg']}; restore it, or delete it and evaluate again"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: not readable as JSON ({error}); restore it, or delete it and evaluate again"
        ) from error
