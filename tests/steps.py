"""A step's rollouts made by hand, for tests of what reads them."""

from collections.abc import Sequence

import numpy as np

from pods.engines import Completion
from pods.rollouts import Step
from pods.rules import Batch, Selection


def step_of(
    totals: dict[str, Sequence[float]], kept: Sequence[int], texts: Sequence[str] = ("a", "b", "c")
) -> Step:
    """totals: question id -> n rewards; kept: flat indices. The texts repeat over the n."""
    rewards = np.array(list(totals.values()), dtype=np.float32)
    prompts, n = rewards.shape
    batch = Batch(
        rewards=rewards,
        by_function={"correctness": rewards.astype(float).round(6)},
        lengths=np.array([[i + 1 for i in range(n)]] * prompts),
        clipped=np.array([[i + 1 == n for i in range(n)]] * prompts),  # the longest one
    )
    return Step(
        rows=[{"id": name, "prompt": f"{name}?", "answer": "1"} for name in totals],
        requests=[],
        completions=[[Completion([1], False)] * n] * prompts,
        texts=[[texts[i % len(texts)] for i in range(n)]] * prompts,
        batch=batch,
        selection=Selection(np.array(kept), np.linspace(-1, 1, len(kept))),
    )
