"""A step's rollouts made by hand, for tests of what reads them."""

from collections.abc import Sequence

import numpy as np

from pods.batch import Batch, Prompt, Rollout, Selection, Step
from pods.engines import Completion
from pods.rollouts import Record


class Fresh:
    """The further prompts of a step, f0, f1, ...; `handed`: those that it gave so far."""

    def __init__(self) -> None:
        self.handed: list[Prompt] = []

    def __call__(self, count: int) -> list[Prompt]:
        start = len(self.handed)
        self.handed += [Prompt(f"f{i}", {}) for i in range(start, start + count)]
        return self.handed[start:]


def step_of(
    totals: dict[str, Sequence[float]],
    kept: Sequence[int],
    texts: Sequence[str] = ("a", "b", "c"),
    number: int = 0,
) -> Record:
    """totals: question id -> its rewards; kept: indices over all. The texts repeat over a prompt's
    rollouts, of 1, 2, ... tokens; the longest is clipped."""
    prompts = [Prompt(name, {"prompt": f"{name}?", "answer": "1"}) for name in totals]
    sizes = [len(values) for values in totals.values()]
    rewards = np.concatenate([np.asarray(v, dtype=np.float32) for v in totals.values()])
    places = np.concatenate([np.arange(size) for size in sizes])
    batch = Batch(
        prompt=np.repeat(np.arange(len(sizes)), sizes),
        rewards=rewards,
        by_function={"correctness": rewards.astype(float).round(6)},
        lengths=places + 1,
        clipped=places + 1 == np.repeat(sizes, sizes),
    )
    rollouts = [Rollout([5], Completion([1], False), texts[i % len(texts)]) for i in places]
    m = max(1, len(kept) // len(sizes))
    step = Step(number, len(sizes), max(sizes), m, prompts, list, {}, np.random.default_rng(0))
    selection = Selection(np.array(kept), np.linspace(-1, 1, len(kept)))
    return Record(step, prompts, rollouts, batch, selection, rounds=1)
