"""The seconds of a step on the machine of a run, as a price list.

seconds = fixed + generate n P + update m P     of a step with P prompts, n rollouts, m kept
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from pods import files
from pods.config.errors import UserError
from pods.config.keys import Prices

FEWEST_STEPS = 10  # a fit to fewer is mostly noise


def of_run(folder: Path) -> Prices:
    """The prices of a run's measured steps. Raises UserError with fewer than FEWEST_STEPS."""
    lines = files.read_lines(folder / "metrics.jsonl")
    if len(lines) < FEWEST_STEPS:
        raise UserError(
            f"run={folder.name}: has {len(lines)} steps, and costs need {FEWEST_STEPS} or more; "
            "train longer, or set clock=l40s"
        )
    return fit(pd.DataFrame(lines))


def fit(steps: pd.DataFrame) -> Prices:
    """Prices from the metrics, a row for each step.

    Generation is split by non-negative least squares into a constant and the longest completion,
    of every round, and all tokens. The first two are fixed; the tokens and the scoring belong to
    generated rollouts, the update to trained ones.
    """
    rounds = steps["generate/rounds"]
    longest = steps["all/completion_length_max"]
    tokens = (steps["all/completion_length_mean"] * steps["generate/rollouts"]).round()
    sizes = np.column_stack([rounds, rounds * longest, tokens])
    # In units of a mean step. A column that never varies equals the constant, which comes first.
    (constant, of_longest, of_tokens), _ = nnls(
        sizes / sizes.mean(axis=0), steps["seconds/generate"]
    )
    mean = steps.mean()
    per_round = (constant + of_longest) / mean["generate/rounds"]
    per_generated = of_tokens + mean["seconds/score"] + mean["seconds/select"]
    last = steps.iloc[-1]  # its count has also the steps whose lines were lost
    return Prices(
        name="measured",
        fixed=float(per_round),
        round=float(per_round),
        generate=float(per_generated / mean["generate/rollouts"]),
        update=float(mean["seconds/update"] / (last["rollouts/trained"] / last["step"])),
    )
