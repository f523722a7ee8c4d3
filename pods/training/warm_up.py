"""The warm-up: one round, and an update at the greatest lengths that the config allows.

Kernels compile and caches fill before the clock starts: a compiled first step takes a minute on a
GPU. A lack of memory shows before the run has spent anything. Nothing of it stays.
"""

import numpy as np

from pods import ranks
from pods.batch import Batch, Selection
from pods.engines import Completion, LivePolicy, Request, Work
from pods.rollouts import Prompt, Record, Rollout, Step
from pods.trainer import PodsTrainer


def warm_up(trainer: PodsTrainer, max_prompt: int, max_completion: int) -> None:
    """Generate and score n rollouts of P prompts, generate at the length limits, then one
    micro-batch of the loss; `max_prompt` and `max_completion` are in tokens."""
    n, m = trainer.args.rollouts_per_prompt, trainer.num_generations
    P = trainer.args.generation_batch_size // m
    order = trainer.data_order
    rows = [order.dataset[order.index(place)] for place in range(P)]  # those of the first step
    prompts = [Prompt(row["id"], row) for row in rows]
    repeated, indices = [prompt for prompt in prompts for _ in range(n)], list(range(n)) * P
    with trainer.clock.phase("generate"):
        rollouts = trainer.draw(repeated, indices)
        longest = [np.resize(rollouts[p * n].prompt_ids, max_prompt).tolist() for p in range(P)]
        requests = [Request(tokens, [i]) for tokens in longest for i in range(n)]
        work = Work(ranks.share(requests), LivePolicy(trainer.model, 0), full_length=True)
        list(trainer.sampler.engine.generate([work]))
    with trainer.clock.phase("score"):
        trainer.score(repeated, rollouts)
    with trainer.clock.phase("update"):
        batch, _ = trainer.hand_over(record_of(trainer, prompts, longest, max_completion))
        trainer.rehearse(batch)


def record_of(
    trainer: PodsTrainer, prompts: list[Prompt], longest: list[list[int]], max_completion: int
) -> Record:
    """A step of m rollouts of each prompt at the length limits, with made-up tokens: an engine may
    stop early."""
    m, special = trainer.num_generations, trainer.processing_class.all_special_ids
    logprobs = [0.0] * max_completion if trainer.sampler.logprobs else None
    rollouts = []
    for tokens in longest:
        plain = [token for token in tokens if token not in special] or tokens
        completion = Completion(np.resize(plain, max_completion).tolist(), True, logprobs)
        rollouts += [Rollout(tokens, completion, "")] * m
    count = len(rollouts)
    batch = Batch(
        prompt=np.repeat(np.arange(len(prompts)), m),
        rewards=np.zeros(count),
        by_function={name: np.zeros(count) for name in trainer.driver.weights},
        lengths=np.full(count, max_completion),
        clipped=np.zeros(count, dtype=bool),
    )
    step = Step(0, len(prompts), m, m, prompts, list, {}, np.random.default_rng(0))
    selection = Selection(np.arange(count), np.ones(count))
    return Record(step, prompts, rollouts, batch, selection, rounds=1)
