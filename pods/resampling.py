"""Stage 3c: further rounds of generation for prompts whose rollouts give no signal.

    uv run train.py resample=dapo   # config/resample/<name>.yaml: paper, formula, published values

A round draws n rollouts of each prompt that is wanted. Of all rounds a step keeps P groups of n, so
that rules and advantages see a batch as without further rounds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pods import ranks
from pods.batch import Batch, Selection, joined
from pods.config.keys import TrainConfig
from pods.curriculum import Prompts, Row
from pods.engines import Completion, Request

# The questions of the next round (None: a new one), and the (P, n) flat indices to keep.
Choice = tuple[list[str | None], np.ndarray]


@dataclass(frozen=True, eq=False)
class Drawn:
    """R prompts with n scored completions each."""

    rows: list[Row]  # (R,) dataset rows
    requests: list[Request]  # (R,)
    completions: list[list[Completion]]  # (R, n)
    texts: list[list[str]]  # (R, n)
    batch: Batch

    def with_round(self, other: "Drawn") -> "Drawn":
        """These prompts, then those of another round."""
        return Drawn(
            self.rows + other.rows,
            self.requests + other.requests,
            self.completions + other.completions,
            self.texts + other.texts,
            joined(self.batch, other.batch),
        )

    def take(self, places: np.ndarray) -> "Drawn":
        """The rollouts at flat indices (P, n); a row holds rollouts of one question."""
        n = self.batch.shape[1]
        rows = [int(i) // n for i in places[:, 0]]
        pairs = [[divmod(int(i), n) for i in row] for row in places]
        return Drawn(
            [self.rows[r] for r in rows],
            [self.requests[r] for r in rows],
            [[self.completions[r][i] for r, i in row] for row in pairs],
            [[self.texts[r][i] for r, i in row] for row in pairs],
            self.batch.take(places),
        )


def dapo(batch: Batch, prompts: int, m: int) -> Choice:
    """A new prompt for each whose rewards are equal; those without signal come last (DAPO, arXiv
    2503.14476, dynamic sampling)."""
    signal, n = ~without_signal(batch), batch.shape[1]
    order = np.argsort(~signal, kind="stable")[:prompts]
    return [None] * (prompts - min(prompts, signal.sum())), order[:, None] * n + np.arange(n)


def ada(batch: Batch, prompts: int, m: int) -> Choice:
    """Another round for each prompt without m/2 right and m/2 wrong rollouts; of all its rollouts
    half right and half wrong ones as far as there are enough, the first by index (Reinforce-Ada,
    arXiv 2510.04996). Right: above the middle of its lowest and highest reward."""
    n, wanted, places = batch.shape[1], [], []
    for question in batch.question_ids[:prompts]:
        rows = np.flatnonzero(batch.question_ids == question)
        mine = (rows[:, None] * n + np.arange(n)).reshape(-1)
        rewards = batch.rewards[rows].reshape(-1)
        right = rewards > (rewards.min() + rewards.max()) / 2
        high, low = mine[right], mine[~right]
        if min(len(high), len(low)) < m // 2:
            wanted.append(str(question))
        taken = int(np.clip(n // 2, n - len(low), len(high)))
        places.append(np.sort(np.r_[high[:taken], low[: n - taken]]))
    return wanted, np.array(places)


METHODS: dict[str, Callable[[Batch, int, int], Choice]] = {"dapo": dapo, "ada": ada}


class Resampling:
    """The further rounds of a step, where the config asks for them."""

    def __init__(self, config: TrainConfig, prompts: Prompts) -> None:
        self.name, self.limit = config.resample.name, config.resample.rounds
        self.m, self.seed, self.prompts = config.kept_per_prompt, config.seed, prompts

    def __call__(
        self, drawn: Drawn, sample: Callable[[list[Row], list[Row]], Drawn]
    ) -> tuple[Drawn, Batch | None, int]:
        """The P prompts of the step, the rollouts of all rounds (None: one round is all that may
        be), and the number of rounds.

        Args:
            drawn: the first round, P prompts.
            sample: draws and scores a round of these rows, given those of the rounds before.
        """
        if self.name == "none":
            return drawn, None, 1
        rng = np.random.default_rng([self.seed, drawn.batch.step, 2])
        method, prompts, count = METHODS[self.name], len(drawn.rows), 1
        wanted, places = method(drawn.batch, prompts, self.m)
        while count < self.limit and (rows := self._rows(wanted, drawn, rng)):
            drawn, count = drawn.with_round(sample(rows, drawn.rows)), count + 1
            wanted, places = method(drawn.batch, prompts, self.m)
        return drawn.take(places), drawn.batch, count

    def _rows(self, wanted: list[str | None], drawn: Drawn, rng: np.random.Generator) -> list[Row]:
        """The rows of the next round; new prompts as far as the data set has any."""
        known = {str(row["id"]): row for row in drawn.rows}
        again = [known[name] for name in wanted if name is not None]
        return again + self.prompts.others(known, len(wanted) - len(again), rng)

    def padded(self, batch: Batch, selection: Selection) -> Selection:
        """The selection with advantage 0 for prompts without signal, which only fill the step."""
        if self.name == "none":
            return selection
        empty = without_signal(batch)[selection.kept // batch.shape[1]]
        return replace(selection, advantages=np.where(empty, 0, selection.advantages))


def without_signal(batch: Batch) -> np.ndarray:
    """(P,) bool: all n rewards of the prompt are equal."""
    return np.ptp(batch.rewards, axis=1) == 0


def problems(config: TrainConfig) -> Iterator[str]:
    """What further rounds cannot go with, one line each."""
    if config.resample.name == "none":
        return
    given, n = f"resample={config.resample.name}", config.rollouts_per_prompt
    if config.resample.rounds < 2:
        yield f"{given} resample.rounds={config.resample.rounds}: set 2 or more, or resample=none"
    if config.prompts.name != "uniform":
        yield (
            f"{given} prompts={config.prompts.name}: the history holds only prompts that were "
            "trained on, not those that further rounds replace; set prompts=uniform or "
            "resample=none"
        )
    if config.engine.name == "trl" and config.engine.vllm_mode == "server":
        yield (
            f"{given} engine.vllm_mode=server: further rounds were never tested with a server; set "
            "resample=none"
        )
    if n % ranks.world_size():
        yield (
            f"{given} rollouts_per_prompt={n}: processes share the rollouts of any number of "
            f"prompts; set a multiple of {ranks.world_size()}, or resample=none"
        )
