"""The step of the warm-up: rollouts of the greatest lengths, and no trace in a rule's history."""

import copy
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pods.engines import Completion, Live, Request, Work
from pods.rollouts import Rollouts, hand_over, share_of


class Rehearsal:
    """Rollouts that also generate from the longest prompts to the longest completions that the
    config allows, and hand TRL rollouts of these lengths."""

    def __init__(self, rollouts: Rollouts) -> None:
        self.rollouts = rollouts

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rollouts, name)

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list | None]:
        real = self.rollouts
        real(prompts, trainer)
        with real.clock.phase("generate"):
            longest = self.at_the_limit(real.newest.requests, trainer)
        return hand_over(replace(real.newest, **longest), real.correction)

    def at_the_limit(self, requests: list[Request], trainer: Any) -> dict[str, list]:
        """Requests and completions of the greatest lengths; their tokens are the prompts', because
        an engine may stop early."""
        sampling, special = self.sampling, trainer.processing_class.all_special_ids
        longest = [
            replace(r, prompt=repeated(r.prompt, sampling.max_prompt_length)) for r in requests
        ]
        policy = Live(trainer.model, trainer.state.global_step)
        work = Work(share_of(longest), policy, full_length=True)
        list(self.engine.generate([work], logprobs=self.logprobs))
        logprobs = [0.0] * sampling.max_completion_length if self.logprobs else None
        written = [[t for t in r.prompt if t not in special] or r.prompt for r in longest]
        completions = [
            [Completion(repeated(ids, sampling.max_completion_length), True, logprobs)] * self.n
            for ids in written
        ]
        return {"requests": longest, "completions": completions}

    def measure_noise(self, trainer: Any, batch: dict[str, Any]) -> None:
        """Nothing: these gradients are of no step."""


@contextmanager
def rehearsal(trainer: Any) -> Iterator[None]:
    """Steps made in this block are rehearsed; the rule's history is as it was at the end."""
    rollouts = trainer.rollout_func
    before = copy.deepcopy(rollouts.state())
    trainer.rollout_func = Rehearsal(rollouts)
    try:
        yield
    finally:
        trainer.rollout_func = rollouts
        rollouts.load(before)


def repeated(tokens: Sequence[int], length: int) -> list[int]:
    """`length` tokens: these, over and over."""
    return list(itertools.islice(itertools.cycle(tokens), length))
