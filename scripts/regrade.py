"""What a change of grader does to an accuracy: stored completions, graded again by each version.

    uv run scripts/regrade.py results=results/<run> versions=[v1,v2,strict]
    uv run scripts/regrade.py results=results/<run>.json show=50

Prints each version's accuracy, how often each pair agrees, and the answers they disagree about.
Nothing is written: evaluate_run.py rewards=[...] adds another version's grades to the results.
"""

import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pods.cli import UserError, command
from rewards import VERSIONS, Scorer
from rewards.tags import last_closed_answer, published_answer

SHOWN_LENGTH = 100  # characters of an answer in the list of disagreements


@dataclass
class RegradeConfig:
    results: Any
    versions: list[str]
    show: int
    workers: int
    deadline_seconds: float


@dataclass(frozen=True)
class Stored:
    """One stored completion."""

    dataset: str
    answer: str
    completion: str


@command("regrade", RegradeConfig)
def main(config: RegradeConfig) -> None:
    check(config)
    paths = config.results if isinstance(config.results, list) else [config.results]
    rows = [row for path in paths for row in read(Path(path))]
    grades = {version: grade(rows, version, config) for version in config.versions}
    print(accuracies(rows, grades))
    print("\n" + agreement(grades))
    if config.show:
        print("\n" + disagreements(rows, grades, config.show))


def check(config: RegradeConfig) -> None:
    """The rules that no type can hold."""
    unknown = [version for version in config.versions if version not in VERSIONS]
    if unknown or len(config.versions) < 2:
        raise UserError(f"versions={config.versions}: give two or more of {', '.join(VERSIONS)}")
    for key in ("show", "workers", "deadline_seconds"):
        if getattr(config, key) < 0:
            raise UserError(f"{key}={getattr(config, key)}: must not be negative")


def read(path: Path) -> list[Stored]:
    """The completions of a result file, of a JSONL file or of a folder of JSONL files."""
    try:
        if path.is_dir():
            files = sorted(path.rglob("*.jsonl"))
            rows = [row for file in files for row in _lines(file, file.parent.name)]
        elif path.suffix == ".jsonl":
            rows = list(_lines(path, path.parent.name))
        else:
            rows = list(_examples(json.loads(path.read_text()), ""))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"results={path}: cannot be read ({type(error).__name__}: {error})"
        ) from None
    if not rows:
        raise UserError(f"results={path}: holds no completions; give a file or folder that does")
    return rows


def _lines(path: Path, dataset: str) -> Iterator[Stored]:
    for line in path.read_bytes().splitlines():
        row = json.loads(line)
        yield Stored(str(row.get("dataset", dataset)), str(row["answer"]), row["completion"])


def _examples(node: Any, dataset: str) -> Iterator[Stored]:
    """Every {"answer", "completion"} below a dataset's "examples"."""
    for key, value in node.items() if isinstance(node, dict) else ():
        if key == "examples":
            for example in value:
                yield Stored(dataset, str(example["answer"]), example["completion"])
        else:
            yield from _examples(value, key)


def grade(rows: list[Stored], version: str, config: RegradeConfig) -> list[bool]:
    """The version's verdicts; late ones are said on stderr."""
    from pods.tasks import TASKS

    kinds = [TASKS[row.dataset].kind if row.dataset in TASKS else "math" for row in rows]
    with Scorer(
        version, workers=config.workers, deadline_seconds=config.deadline_seconds
    ) as scorer:
        verdicts = scorer.grade([r.completion for r in rows], [r.answer for r in rows], kinds)
    if scorer.timeouts:
        print(f"{version}: {scorer.timeouts} completions out of time, wrong", file=sys.stderr)
    return verdicts


def accuracies(rows: list[Stored], grades: dict[str, list[bool]]) -> str:
    """Accuracy by dataset and version, in percent."""
    header = f"{'accuracy, %':<16}{'completions':>12}" + "".join(f"{v:>16}" for v in grades)
    lines = [header]
    for dataset in [*sorted({row.dataset for row in rows}), None]:
        chosen = [i for i, row in enumerate(rows) if dataset in (row.dataset, None)]
        cells = (
            100 * sum(verdicts[i] for i in chosen) / len(chosen) for verdicts in grades.values()
        )
        name = "all" if dataset is None else dataset
        lines.append(f"{name:<16}{len(chosen):>12}" + "".join(f"{cell:>16.2f}" for cell in cells))
    return "\n".join(lines)


def agreement(grades: dict[str, list[bool]]) -> str:
    """For each pair of versions: how often they agree, and who alone says right."""
    lines = [f"{'pair':<30}{'agree, %':>10}{'only first':>12}{'only second':>13}"]
    for first, second in itertools.combinations(grades, 2):
        counts = Counter(zip(grades[first], grades[second], strict=True))
        same = 100 * (counts[True, True] + counts[False, False]) / counts.total()
        lines.append(
            f"{f'{first} / {second}':<30}{same:>10.2f}"
            f"{counts[True, False]:>12}{counts[False, True]:>13}"
        )
    return "\n".join(lines)


def disagreements(rows: list[Stored], grades: dict[str, list[bool]], show: int) -> str:
    """The answers on which the versions differ, the most frequent first."""
    counts: Counter[tuple[str, str, tuple[bool, ...]]] = Counter()
    for row, *verdicts in zip(rows, *grades.values(), strict=True):
        if len(set(verdicts)) > 1:
            counts[row.answer, _shown(row.completion), tuple(verdicts)] += 1
    lines = [f"{counts.total()} disagreements, {len(counts)} different; answers end like this:"]
    for (gold, answer, verdicts), count in counts.most_common(show):
        said = " ".join(
            f"{version} {'right' if right else 'wrong'}"
            for version, right in zip(grades, verdicts, strict=True)
        )
        lines.append(f"{count:>5} x  {said}  gold {gold!r}  answer {answer!r}")
    return "\n".join(lines)


def _shown(completion: str) -> str:
    answer = last_closed_answer(completion)
    if answer is None:
        answer = f"{published_answer(completion)} (no closed <answer>)"
    return " ".join(answer.split())[-SHOWN_LENGTH:]


if __name__ == "__main__":
    main()
