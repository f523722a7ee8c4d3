"""The score of every question, where evaluate_run.py recorded it: results/<run>/checkpoint-*/.

All runs answer the same questions, whose choice is noise too: about 2 points with 256 questions.
Used by `uv run scripts/speedup.py`.
"""

import numpy as np

from pods.cli import UserError
from pods.evaluation import records
from pods.figures.curves import Series
from pods.figures.statistics import LAST


def scores(arms: list[Series], marks: int) -> list[np.ndarray]:
    """(runs, questions) of each arm: mean over repeats and the last three of the first `marks`.

    [] where a run has no records, or where the runs answered other questions.
    """
    rows = [[_of_run(arm, i, marks) for i in range(len(arm.samples))] for arm in arms]
    every = [row for of_arm in rows for row in of_arm]
    ids = sorted(every[0]) if every else []
    if len(ids) < 2 or any(sorted(row) != ids for row in every):
        return []
    return [np.array([[row[key] for key in ids] for row in of_arm]) for of_arm in rows]


def _of_run(arm: Series, index: int, marks: int) -> dict[str, float]:
    """Question id -> score of one run; {} without readable records."""
    run, found = arm.samples[index], {}
    known = np.isfinite(arm.quantities["value"][index, :marks])
    for step in arm.quantities["steps"][index, :marks][known][-LAST:]:
        for path in run.records.get(int(step), []):
            try:
                for record in records.read(path):
                    right = record["correct"][run.settings["rewards.version"]]
                    formed = record["well_formed"]
                    score = {"ans_acc": right, "for_acc": formed, "both_acc": right and formed}
                    found.setdefault(record["id"], []).append(score[run.metric])  # none for pass@k
            except (UserError, OSError, KeyError, TypeError):
                return {}
    return {key: float(np.mean(scores)) for key, scores in found.items()}
