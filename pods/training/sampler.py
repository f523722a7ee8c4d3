"""Rollouts of a training by one of our engines, each from a seed of its own."""

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pods.engines import Engine, LivePolicy, Request, Work, seed_of, texts
from pods.rollouts import Prompt, Rollout
from pods.tasks import encode_prompt


@dataclass(frozen=True)
class EngineSampler:
    """A rollout's seed is a function of (seed, step, question, index), so that rollouts depend on
    weights and position alone: a resumed run repeats them, and runs that differ in n, prompts per
    step or ranks share them.
    """

    engine: Engine
    tokenizer: Any
    stop: tuple[str, ...]  # strings that end a completion
    seed: int
    logprobs: bool  # whether rollouts keep them

    def __call__(self, wanted: list[tuple[Prompt, int]], model: Any, step: int) -> list[Rollout]:
        """A rollout for each prompt and index.

        Args:
            wanted: prompts with the index of the rollout among those of its question in the step.
            model: the policy in training.
            step: optimiser steps done.
        """
        requests = self.requests(wanted, step)
        work = Work(requests, LivePolicy(model, step))
        ((_, groups),) = self.engine.generate([work], logprobs=self.logprobs)
        completions = [completion for group in groups for completion in group]
        if not self.logprobs:
            completions = [replace(completion, logprobs=None) for completion in completions]
        prompt_ids = [list(request.prompt) for request in requests for _ in request.seeds]
        written = texts(self.tokenizer, completions, self.stop)
        return [Rollout(*row) for row in zip(prompt_ids, completions, written, strict=True)]

    def requests(self, wanted: list[tuple[Prompt, int]], step: int) -> list[Request]:
        """Neighbours of one prompt are one request."""
        requests = []
        for _, pairs in groupby(wanted, key=lambda pair: id(pair[0])):
            prompts, indices = zip(*pairs, strict=True)
            seeds = [seed_of(self.seed, step, prompts[0], index) for index in indices]
            requests.append(Request(encode_prompt(prompts[0].row["prompt"], self.tokenizer), seeds))
        return requests
