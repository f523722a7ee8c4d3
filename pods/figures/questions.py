"""The score of every question, where evaluate_run.py recorded it: results/<run>/checkpoint-*/.

All runs answer the same questions, whose choice is noise too: about 2 points with 256 questions.
Used by `uv run scripts/speedup.py`.
"""

from functools import cache
from pathlib import Path

import numpy as np

from pods.config.errors import UserError
from pods.evaluation import records
from pods.figures.curves import Series
from pods.figures.statistics import LAST


def scores(arms: list[Series], marks: int) -> list[np.ndarray]:
    """(runs, questions) of each arm: mean over repeats and the last three of the first `marks`.

    [] where a run has no records, or where the runs answered other questions.
    """
    rows = [[_of_run(*_files(arm, i, marks)) for i in range(len(arm.samples))] for arm in arms]
    every = [row for of_arm in rows for row in of_arm]
    ids = sorted(every[0]) if every else []
    if len(ids) < 2 or any(sorted(row) != ids for row in every):
        return []
    return [np.array([[row[key] for key in ids] for row in of_arm]) for of_arm in rows]


def _files(arm: Series, index: int, marks: int) -> tuple[tuple[Path, ...], str | None, str]:
    """The records of a run at its last three marks, the grader of its training, and the metric."""
    run, known = arm.samples[index], np.isfinite(arm.quantities["value"][index, :marks])
    steps = arm.quantities["steps"][index, :marks][known][-LAST:]
    paths = tuple(path for step in steps for path in run.records.get(int(step), []))
    return paths, run.settings.get("rewards.version"), run.metric


@cache  # an arm takes part in several pairs
def _of_run(paths: tuple[Path, ...], version: str | None, metric: str) -> dict[str, float]:
    """Question id -> mean score; {} without readable records with such a grade."""
    found: dict[str, list[float]] = {}
    for path in paths:
        try:
            for record in records.read(path):
                right, formed = record["correct"][version], record["well_formed"]
                score = {"ans_acc": right, "for_acc": formed, "both_acc": right and formed}
                found.setdefault(record["id"], []).append(score[metric])  # none for pass@k
        except (UserError, OSError, KeyError, TypeError):
            return {}
    return {key: float(np.mean(scores)) for key, scores in found.items()}
