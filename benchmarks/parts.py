"""One algorithm whose parts can be chosen singly, to tell which of them makes an arm fast.

    uv run train.py experiment=sums algorithm=benchmarks/parts.py:parts algorithm_kwargs.alive=true
It is PODS with its default parameters. With pool=2 look=2 alive=true rows=kinds advantages=weighted
the sum over its rows has the expectation of GRPO's on the drawn prompts: the board's thin_weighted.
"""

from typing import Literal

import numpy as np

from pods.advantages import over_kept
from pods.algorithms import all_advantages, halves
from pods.batch import Selection, Step
from pods.history import streak
from pods.rules import max_variance


def parts(
    step: Step,
    pool: int = 1,
    look: int = 1,
    alive: bool = False,
    rows: Literal["chance", "variance", "kinds"] = "variance",
    advantages: Literal["kept", "all", "weighted"] = "kept",
):
    """At most m rows of each of pool * P prompts, up to the budget.

    look: from that many times as many prompts, those all correct at their last visit coming last.
    alive: groups all correct or all wrong leave the update. rows: any m | those of largest reward
    variance | at most m/2 correct and m/2 wrong ones. advantages: over the kept rows of a prompt |
    over all its rollouts | those, weighted for the rows of a kind that are left out.
    """
    prompts = [*step.prompts, *step.fresh((look * pool - 1) * step.P)]
    if look > 1:
        prompts.sort(key=lambda prompt: streak(step.history, prompt)[0])
    batch = yield prompts[: pool * step.P], step.n
    kept: list[int] = []
    weights: list[float] = []  # of a row, for the rows of its kind that it stands for
    for p in batch.alive if alive else range(len(batch.groups)):
        group = batch.groups[p]
        kinds = [group]
        size = min(step.m, len(group))
        if rows == "kinds":
            kinds = [kind for kind in halves(batch, group) if len(kind)]
            size = max(1, step.m // 2)
        for kind in kinds:
            chosen = kind[:size]  # any: rollouts of a prompt are drawn alike
            if rows == "variance":
                chosen = kind[max_variance(batch.rewards[kind], size, step.rng)]
            kept += chosen.tolist()
            weights += [len(kind) / len(chosen)] * len(chosen)
    indices = np.array(kept[: step.budget], int)
    if advantages == "kept":
        return Selection(indices, over_kept(batch, indices))
    values = all_advantages(batch)[indices]
    if advantages == "weighted":
        values = values * np.array(weights[: step.budget]) * len(indices) / len(batch)
    return Selection(indices, values)


parts.own_advantages = True
