"""What the result files of a figure's arms do not hold: seconds by phase, and questions that two
arms answer unlike. Read from the run folders, where this machine has them.

Used by `uv run scripts/report.py figure=<name>` and `runs={A: [...], B: [...]}`.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from pods import ledger
from pods.clock import STEP_PHASES
from pods.figures.curves import Series
from pods.figures.tables import Row
from pods.runs import read_metrics

MOST = 12  # questions in the table
LETTERS = 120  # of a completion


def phases(series: list[Series], output_dir: Path) -> list[Row]:
    """Mean seconds of a step by arm and phase."""
    rows = []
    for arm in series:
        files = [output_dir / run / "metrics.jsonl" for run in arm.runs]
        lines = [line for file in files if file.is_file() for line in read_metrics(file)]
        if lines:
            means = {name: fmean(line[f"seconds/{name}"] for line in lines) for name in STEP_PHASES}
            row = {"arm": arm.label, "steps": f"{len(lines):,}"}
            row |= {f"{name}, s": f"{value:.3g}" for name, value in means.items()}
            rows.append(row | {"step, s": f"{sum(means.values()):.3g}"})
    return rows


def differences(first: Series, second: Series, output_dir: Path) -> list[Row]:
    """Questions that two runs of one seed met in the same step and answered most unlike.

    Their rollouts have the same seeds, so that they differ by the weights alone; counted over as
    many as both have.
    """
    seeds = {seed: run for seed, run in zip(first.seeds, first.runs, strict=True)}
    pairs = [(seed, seeds[seed], run) for seed, run in zip(second.seeds, second.runs, strict=True)
             if seed is not None and seed in seeds]  # fmt: skip
    for seed, one, other in pairs:
        paths = [output_dir / run / "rollouts.jsonl.zst" for run in (one, other)]
        if all(path.is_file() for path in paths):
            break
    else:
        return []
    known = {(r["step"], r["question_id"]): r for r in ledger.read(paths[0])}
    found = []
    for record in ledger.read(paths[1]):
        if (before := known.get((record["step"], record["question_id"]))) is not None:
            count = min(len(before["total"]), len(record["total"]))
            right = [
                sum(r["rewards"]["correctness"][i] > 0 for i in range(count))
                for r in (before, record)
            ]
            found.append((abs(right[1] - right[0]) / count, count, right, before, record))
    found.sort(key=lambda item: -item[0])
    return [
        {"seed, step": f"{seed}, {record['step']}", "question": _text(record.get("prompt"), record["question_id"]),
         "right answer": str(record["answer"]),
         f"{first.label}: right": f"{right[0]} of {count}", f"{second.label}: right": f"{right[1]} of {count}",
         f"{first.label}: a rollout": _example(before, record, count),
         f"{second.label}: a rollout": _example(record, before, count)}
        for gap, count, right, before, record in found[:MOST] if gap > 0
    ]  # fmt: skip


def _example(record: dict[str, Any], other: dict[str, Any], count: int) -> str:
    """The first rollout that is right in one of the runs only, or "" without texts."""
    mine, theirs = record["rewards"]["correctness"], other["rewards"]["correctness"]
    i = next(i for i in range(count) if (mine[i] > 0) != (theirs[i] > 0))
    return _text((record.get("completions") or [""] * count)[i], "")


def _text(text: str | None, instead: str) -> str:
    """The end of a text, where the question or the answer stands."""
    if not text:
        return str(instead)
    return text if len(text) <= LETTERS else f"...{text[-LETTERS:]}"
