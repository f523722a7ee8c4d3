"""What the result files of a figure's arms do not hold: seconds by phase, and questions that two
arms answer unlike. Read from the run folders, where this machine has them.

Used by `uv run scripts/report.py figure=<name>` and `runs={A: [...], B: [...]}`.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from pods.clock import STEP_PHASES
from pods.figures.curves import Series
from pods.figures.tables import Row
from pods.runs import ledger
from pods.runs.folder import read_metrics

MOST = 12  # questions in the table
LETTERS = 120  # of a completion


def phases(series: list[Series], output_dir: Path) -> list[Row]:
    """Mean seconds of a step by arm and phase."""
    rows = []
    for arm in series:
        files = [output_dir / run / "metrics.jsonl" for run in arm.runs]
        lines = [line for file in files if file.is_file() for line in read_metrics(file)]
        if lines:
            means = {
                name: fmean(line.get(f"seconds/{name}", 0.0) for line in lines)
                for name in STEP_PHASES
            }
            row = {"arm": arm.label, "steps": f"{len(lines):,}"}
            row |= {f"{name}, s": f"{value:.3g}" for name, value in means.items()}
            rows.append(row | {"step, s": f"{sum(means.values()):.3g}"})
    return rows


def differences(first: Series, second: Series, output_dir: Path) -> list[Row]:
    """Questions that two runs of one seed met in the same step and answered most unlike.

    Their rollouts have the same seeds, so that they differ by the weights alone; counted over as
    many as both have.
    """
    seed, paths = shared_seed(first, second, output_dir)
    if not paths:
        return []
    known = {(record["step"], record["question_id"]): record for record in ledger.read(paths[0])}
    found = []
    for after in ledger.read(paths[1]):
        if before := known.get((after["step"], after["question_id"])):
            count = min(len(before["total"]), len(after["total"]))
            right = [_right(record, count) for record in (before, after)]
            found.append((abs(sum(right[1]) - sum(right[0])) / count, right, (before, after)))
    found.sort(key=lambda item: -item[0])
    rows = []
    for gap, right, records in found[:MOST]:
        if gap == 0:
            break
        row = {"seed": str(seed), "step": str(records[0]["step"])}
        row["question"] = _end(records[0].get("prompt") or records[0]["question_id"])
        row["answer"] = str(records[0]["answer"])
        unlike = next(i for i, (a, b) in enumerate(zip(*right, strict=True)) if a != b)
        for arm, hits, record in zip((first, second), right, records, strict=True):
            row[f"{arm.label}: right"] = f"{sum(hits)} of {len(hits)}"
            texts = record.get("completions")
            row[f"{arm.label}: one rollout"] = _end(texts[unlike]) if texts else ""
        rows.append(row)
    return rows


def shared_seed(first: Series, second: Series, output_dir: Path) -> tuple[int | None, list[Path]]:
    """The first seed of which both arms have a ledger, and the two; no paths without one."""
    runs = dict(zip(first.seeds, first.runs, strict=True))
    for seed, run in zip(second.seeds, second.runs, strict=True):
        paths = [output_dir / name / "rollouts.jsonl.gz" for name in (runs.get(seed, ""), run)]
        if seed is not None and all(path.is_file() for path in paths):
            return seed, paths
    return None, []


def _right(record: dict[str, Any], count: int) -> list[bool]:
    """By correctness; by the total where a run has no such reward."""
    return [value > 0 for value in record["rewards"].get("correctness", record["total"])[:count]]


def _end(text: str) -> str:
    """The end of a text, where the question or the answer stands."""
    return text if len(text) <= LETTERS else f"...{text[-LETTERS:]}"
