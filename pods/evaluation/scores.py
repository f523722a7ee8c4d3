"""From the records of one (checkpoint, task) to its numbers: the published entry, and our details.

Records keep their grades, so a second grader costs no new generation. Intervals resample questions,
because the repeats of one question are not independent. The published files hold one number per
repeat; intervals and pass@k are ours. In arrays axis 0 is the question, axis 1 the repeat.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

import rewards
from pods.evaluation import records
from pods.evaluation.records import Record
from pods.runs import results

EXAMPLES = 5  # completions kept per dataset, as in the published files
RESAMPLES = 1000  # the 2.5 % ends then vary by about 2 % of the interval's width
EDGE = 10  # expected right (or wrong) questions; with fewer a bootstrap interval is too narrow


def grade(repeat: list[Record], versions: Sequence[str], kind: str) -> bool:
    """Add the missing grades; returns whether any was missing."""
    added = False
    for version in versions:
        todo = [record for record in repeat if version not in record["correct"]]
        texts, answers = [r["completion"] for r in todo], [r["answer"] for r in todo]
        correct = rewards.score(texts, answers, version, kind)["correctness"]
        for record, value in zip(todo, correct, strict=True):
            record["correct"][version] = bool(value)
        added = added or bool(todo)
    return added


def graded(path: Path, versions: Sequence[str], kind: str) -> list[Record]:
    """The records of one repeat; grades that its file lacks are written back to it."""
    repeat = records.read(path)
    if grade(repeat, versions, kind):
        records.write(path, repeat)
    return repeat


def entry(repeats: list[list[Record]], version: str, prompts: Sequence[str]) -> results.Entry:
    """The published form: one number a repeat, by grader `version`; grades of examples are text."""
    correct, formed = _correct(repeats, version), _column(repeats, "well_formed")
    examples = zip(prompts[:EXAMPLES], repeats[0], strict=False)
    return results.Entry(
        ans_acc=correct.mean(axis=0).tolist(),
        for_acc=formed.mean(axis=0).tolist(),
        both_acc=(correct * formed).mean(axis=0).tolist(),
        lengths=_column(repeats, "tokens").mean(axis=0).tolist(),
        examples=[
            {"prompt": prompt, "answer": record["answer"], "completion": record["completion"],
             "correct": str(record["correct"][version]),
             "format_correct": str(record["well_formed"])}
            for prompt, record in examples
        ],
    )  # fmt: skip


def details(
    repeats: list[list[Record]], versions: Sequence[str], pass_at: Sequence[int]
) -> dict[str, Any]:
    """Every metric with its interval; a k above the number of repeats cannot be estimated."""
    formed = _column(repeats, "well_formed")
    rows = {("", "format"): formed.mean(axis=1)}  # (grader, metric) -> (questions,)
    rows |= {("", name): _column(repeats, name).mean(axis=1) for name in ("tokens", "truncated")}
    for version in versions:
        correct = _correct(repeats, version)
        rows[version, "answer"] = correct.mean(axis=1)
        rows[version, "both"] = (correct * formed).mean(axis=1)
        for k in [k for k in pass_at if k <= len(repeats)]:
            rows[version, f"pass@{k}"] = pass_at_k(correct, k)
    nested: dict[str, dict[str, Any]] = {name: {} for name in ("", *versions)}
    for (version, metric), interval in zip(
        rows, intervals(np.array([*rows.values()])), strict=True
    ):
        nested[version][metric] = interval
    counts = {"questions": len(repeats[0]), "repeats": len(repeats)}
    return counts | nested.pop("") | {"rewards": nested}


def pass_at_k(correct: np.ndarray, k: int) -> np.ndarray:
    """Per question, the chance that k of its repeats, drawn without return, hold a correct one.

    correct: (questions, repeats) of 0/1; returns (questions,). Unbiased: 1 - C(n - c, k) / C(n, k)
    (Chen et al. 2021, eq. 1) in whole numbers. Raises ValueError unless 1 <= k <= repeats.
    """
    n = np.shape(correct)[1]
    if not 1 <= k <= n:
        raise ValueError(f"k={k}: must lie in 1..{n}, the number of repeats")
    return np.array([1.0 - comb(n - int(c), k) / comb(n, k) for c in np.sum(correct, axis=1)])


def intervals(values: np.ndarray) -> list[dict[str, float]]:
    """The mean of each row with its 95 % interval; values: (metrics, questions).

    One set of resamples serves all rows and all checkpoints of a task: differences are paired.
    A share near 0 or 1 has Wilson's interval, because every resample of 0 of 30 is 0.
    """
    values = np.asarray(values, dtype=float)
    weights = _resample_weights(values.shape[1])
    # Row by row: a product of matrices would round by how many metrics were asked for.
    resampled = np.array([weights @ row for row in values])  # (metrics, RESAMPLES)
    ends = np.quantile(resampled, [0.025, 0.975], axis=1)
    for i, row in enumerate(values):
        rare = len(row) * min(row.mean(), 1 - row.mean()) < EDGE
        if rare and row.min() >= 0 and row.max() <= 1:
            ends[:, i] = _wilson(row)
    columns = np.stack([values.mean(axis=1), *ends], axis=1).tolist()
    return [dict(zip(("mean", "low", "high"), row, strict=True)) for row in columns]


def _wilson(row: np.ndarray) -> tuple[float, float]:
    """Wilson's 95 % interval for the mean of shares, (questions,).

    Means over repeats vary less than 0/1 does: they count as so many more questions. (SciPy's
    interval takes whole counts only.)
    """
    mean, n, z = row.mean(), len(row), 1.96
    if row.var() > 0:
        n *= mean * (1 - mean) / row.var()
    centre, half = mean + z**2 / (2 * n), z * np.sqrt(mean * (1 - mean) / n + (z / (2 * n)) ** 2)
    return (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)


@lru_cache
def _resample_weights(questions: int) -> np.ndarray:
    """(RESAMPLES, questions): each row, the share of every question in one bootstrap resample."""
    rng = np.random.default_rng(questions)
    return rng.multinomial(questions, np.full(questions, 1 / questions), size=RESAMPLES) / questions


def _correct(repeats: list[list[Record]], version: str) -> np.ndarray:
    """(questions, repeats)"""
    return np.array([[float(r["correct"][version]) for r in repeat] for repeat in repeats]).T


def _column(repeats: list[list[Record]], name: str) -> np.ndarray:
    """(questions, repeats)"""
    return np.array([[float(record[name]) for record in repeat] for repeat in repeats]).T
