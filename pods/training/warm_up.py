"""A run's warm-up before its first step."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch

from pods import ranks
from pods.batch import Completion, Prompt, Rollout, Row
from pods.config.keys import TrainConfig
from pods.engines import LivePolicy, Work, requests_of
from pods.lean_update import Tensors
from pods.trainer import PodsTrainer
from pods.trl_adapter import changed


def warm_up(
    trainer: PodsTrainer, config: TrainConfig, phase: Callable[[str], AbstractContextManager]
) -> None:
    """Sample a round, then one at the length limits, and run the loss on a micro-batch: kernels are
    compiled, and a lack of memory shows, before the clock starts. No state changes."""
    limits = config.sampling
    n = trainer.args.rollouts_per_prompt
    P = trainer.args.generation_batch_size // trainer.num_generations
    order = trainer.data_order
    first = [order.index(position) for position in range(P)]  # of the first step
    rows = [order.dataset[index] for index in first]
    prompts = []
    for row in rows:
        prompts += [Prompt(row["id"], row)] * n
    with phase("generate"):
        indices = list(range(n)) * P
        rollouts = trainer.sample(prompts, indices)
        wanted = ranks.share(list(zip(prompts, indices, strict=True)))
        longest = [
            np.resize(prompt.row["prompt_ids"], limits.max_prompt_length).tolist()
            for prompt, _ in wanted
        ]
        requests = requests_of(wanted, longest, config.seed, 0)
        work = Work(requests, LivePolicy(trainer.model, 0), full_length=True)
        list(trainer.sampler.engine.generate([work]))
    with phase("score"):
        trainer.score(prompts, rollouts)
    batch = longest_batch(trainer, rows[0], requests[0].prompt, limits.max_completion_length)
    with phase("update"):
        trainer.dry_run_update(batch)
    # With several processes a lack of memory in one would leave the others waiting.
    if config.trial and ranks.world_size() == 1 and trainer.may_recompute:
        compare_recomputation(trainer, batch)


def compare_recomputation(trainer: PodsTrainer, batch: Tensors) -> None:
    """Print the seconds of an update of these rows with gradient_checkpointing, and without it in
    the largest micro-batches that fit."""

    def seconds(on: bool, rows: int) -> float:
        with (
            trainer.recomputation(on),
            changed(trainer.args, per_device_train_batch_size=rows),
        ):
            trainer.dry_run_update(batch)  # kernels compile
            began = time.perf_counter()
            trainer.dry_run_update(batch)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            return (time.perf_counter() - began) * size / rows

    rows = size = trainer.args.per_device_train_batch_size
    recomputed = seconds(True, size)
    while True:
        try:
            kept = seconds(False, rows)
            break
        except torch.OutOfMemoryError:
            trainer.model.zero_grad()
            if rows == 1:
                print("gradient_checkpointing=false: memory is too small; leave it true")
                return
            rows = max(k for k in range(1, rows) if size % k == 0)
    without = "false" if rows == size else f"false micro_batch_size={rows}"
    print(
        "gradient_checkpointing: the update of the longest micro-batch takes "
        f"{recomputed:.3g} s with true and {kept:.3g} s with {without}; "
        f"set gradient_checkpointing={without if kept < recomputed else 'true'}"
    )


def longest_batch(trainer: PodsTrainer, row: Row, tokens: list[int], length: int) -> Tensors:
    """TRL's batch of made-up rollouts at the length limits; m rollouts share a prompt."""
    special = trainer.processing_class.all_special_ids
    plain = [token for token in tokens if token not in special] or tokens
    logprobs = [0.0] * length if trainer.sampler.keeps_logprobs else None
    completion = Completion(
        token_ids=np.resize(plain, length).tolist(),
        clipped=True,
        logprobs=logprobs,
    )
    scores = torch.zeros(trainer.args.generation_batch_size, len(trainer.reward_func_names))
    count = len(scores) // ranks.world_size()
    turns = [i // trainer.num_generations % len(tokens) for i in range(count)]
    rollouts = [Rollout([*tokens[k:], *tokens[:k]], completion, "") for k in turns]
    return trainer.tensors([row["prompt"]] * count, rollouts, scores)
