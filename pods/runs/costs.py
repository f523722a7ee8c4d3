"""The seconds of a step on the machine of a run, as a price list.

seconds = fixed + generate n P + update m P     of a step with P prompts, n rollouts, m kept
"""

from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from pods import files
from pods.config.errors import UserError
from pods.config.keys import Prices
from pods.files import JsonObject
from pods.runs import ledger

FEWEST_STEPS = 10  # a fit to fewer is mostly noise


def of_run(folder: Path) -> Prices:
    """The prices of a run's measured steps. Raises UserError without a ledger or with fewer than
    FEWEST_STEPS steps."""
    records = files.read_lines(ledger.find(folder.parent, folder.name))
    by_step = {step: list(group) for step, group in groupby(records, lambda r: r["step"])}
    metrics = [
        line for line in files.read_lines(folder / "metrics.jsonl") if line["step"] in by_step
    ]
    if len(metrics) < FEWEST_STEPS:
        raise UserError(
            f"run={folder.name}: has {len(metrics)} steps, and costs need {FEWEST_STEPS} or more; "
            "train longer, or set clock=l40s"
        )
    return fit(metrics, [by_step[line["step"]] for line in metrics])


def fit(metrics: list[JsonObject], steps: list[list[JsonObject]]) -> Prices:
    """Prices from the metrics and the ledger's records of the same steps.

    Generation is split by non-negative least squares into a constant and the longest completion,
    of every round, and all tokens. The first two are fixed; the tokens and the scoring belong to
    generated rollouts, the update to trained ones.
    """
    table = pd.DataFrame(metrics)  # a row for each step
    rounds = table.get("generate/rounds", pd.Series(1.0, table.index))
    lengths = [np.concatenate([record["lengths"] for record in step]) for step in steps]
    sizes = np.array([[1.0, step.max(), step.sum()] for step in lengths])  # (steps, 3)
    for column in sizes.T[1:]:
        if np.ptp(column) == 0:  # not to be told from the constant, which then counts alone
            column[:] = 0
    sizes[:, :2] *= rounds.to_numpy()[:, None]
    coefficients, _ = nnls(sizes, table["seconds/generate"])
    constant, of_longest, of_tokens = coefficients * sizes.mean(axis=0)  # s of a mean step
    per_round = (constant + of_longest) / rounds.mean()
    generated = np.mean([len(step) for step in lengths])
    trained = np.mean([sum(len(record["kept"]) for record in step) for step in steps])
    mean = table.mean()
    per_generated = of_tokens + mean["seconds/score"] + mean["seconds/select"]
    return Prices(
        name="measured",
        fixed=float(per_round),
        round=float(per_round),
        generate=float(per_generated / generated),
        update=float(mean["seconds/update"] / trained),
    )
