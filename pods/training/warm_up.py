"""The warm-up: one round, and an update at the greatest lengths that the config allows.

Kernels compile and a lack of memory shows before the clock starts. Nothing of it stays.
"""

import numpy as np
import torch

from pods import ranks
from pods.batch import Prompt, Rollout, Row
from pods.engines import Completion, LivePolicy, Request, Work
from pods.training.run_trainer import RunTrainer


def warm_up(trainer: RunTrainer) -> None:
    """A round, another at the length limits of the sampling, and a micro-batch of the loss."""
    limits = trainer.config.sampling
    n = trainer.args.rollouts_per_prompt
    P = trainer.args.generation_batch_size // trainer.num_generations
    order = trainer.data_order
    rows = [order.dataset[order.index(place)] for place in range(P)]  # those of the first step
    prompts = []
    for row in rows:
        prompts += [Prompt(row["id"], row)] * n
    with trainer.phase("generate"):
        rollouts = trainer.draw(prompts, list(range(n)) * P)
        longest = []  # the tokens of each prompt, repeated to the limit
        for rollout in rollouts[::n]:
            longest.append(np.resize(rollout.prompt_ids, limits.max_prompt_length).tolist())
        requests = []
        for tokens in longest:
            requests += [Request(tokens, [index]) for index in range(n)]
        work = Work(
            requests=ranks.share(requests),
            weights=LivePolicy(trainer.model, 0),
            full_length=True,
        )
        list(trainer.engine.generate([work]))
    with trainer.phase("score"):
        trainer.score(prompts, rollouts)
    batch = longest_batch(trainer, rows[0], longest[0], limits.max_completion_length)
    with trainer.phase("update"):
        trainer.rehearse(batch)


def longest_batch(
    trainer: RunTrainer, row: Row, tokens: list[int], length: int
) -> dict[str, torch.Tensor]:
    """TRL's batch of equal rollouts at the length limits, with made-up tokens."""
    special = trainer.processing_class.all_special_ids
    plain = [token for token in tokens if token not in special] or tokens
    logprobs = [0.0] * length if trainer.keeps_logprobs else None
    completion = Completion(
        token_ids=np.resize(plain, length).tolist(),
        clipped=True,
        logprobs=logprobs,
    )
    scores = torch.zeros(trainer.args.generation_batch_size, len(trainer.reward_func_names))
    count = len(scores) // ranks.world_size()
    rollouts = [Rollout(tokens, completion, "")] * count
    return trainer.tensors([row["prompt"]] * count, rollouts, scores)
