"""The warm-up: one round, and an update at the greatest lengths that the config allows.

Kernels compile and a lack of memory shows before the clock starts. Nothing of it stays.
"""

import numpy as np
import torch

from pods import ranks
from pods.batch import Prompt, Rollout, Row
from pods.engines import Completion, LivePolicy, Request, Work
from pods.trainer import PodsTrainer


def warm_up(trainer: PodsTrainer, max_prompt: int, max_completion: int) -> None:
    """A round, another at the length limits (tokens), and a micro-batch of the loss."""
    n, m = trainer.args.rollouts_per_prompt, trainer.num_generations
    P = trainer.args.generation_batch_size // m
    order = trainer.data_order
    rows = [order.dataset[order.index(place)] for place in range(P)]  # those of the first step
    prompts = [prompt for row in rows for prompt in [Prompt(row["id"], row)] * n]
    with trainer.clock.phase("generate"):
        rollouts = trainer.draw(prompts, list(range(n)) * P)
        longest = [np.resize(rollouts[p * n].prompt_ids, max_prompt).tolist() for p in range(P)]
        requests = [Request(tokens, [i]) for tokens in longest for i in range(n)]
        work = Work(ranks.share(requests), LivePolicy(trainer.model, 0), full_length=True)
        list(trainer.sampler.engine.generate([work]))
    with trainer.clock.phase("score"):
        trainer.score(prompts, rollouts)
    with trainer.clock.phase("update"):
        trainer.rehearse(longest_batch(trainer, rows[0], longest[0], max_completion))


def longest_batch(
    trainer: PodsTrainer, row: Row, tokens: list[int], max_completion: int
) -> dict[str, torch.Tensor]:
    """TRL's batch of equal rollouts at the length limits, with made-up tokens."""
    plain = [i for i in tokens if i not in trainer.processing_class.all_special_ids] or tokens
    logprobs = [0.0] * max_completion if trainer.sampler.logprobs else None
    completion = Completion(np.resize(plain, max_completion).tolist(), True, logprobs)
    scores = torch.zeros(trainer.args.generation_batch_size, len(trainer.driver.weights))
    count = len(scores) // ranks.world_size()
    rollouts = [Rollout(tokens, completion, "")] * count
    return trainer.tensors([row["prompt"]] * count, rollouts, scores)
