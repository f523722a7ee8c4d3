"""Stage 6: the one file that uses private names of TRL, of transformers' Trainer and of Unsloth.

Two methods of GRPOTrainer are extended; everything else of the update is TRL's. `num_generations`
is m, so TRL never sees the n - m rollouts that were dropped. A new version of TRL is checked here
and in tests/test_seam.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from datasets import Dataset

from pods import distributed


class PodsMixin:
    """Over GRPOTrainer: hands dataset rows to the rollouts, takes advantages from them, and orders
    the data by epoch."""

    dataset_rows: list[dict] | None = None

    def _generate_and_score_completions(self, inputs: list[dict]) -> dict[str, Any]:
        self.dataset_rows = inputs  # TRL's rollout_func gets prompts without their columns
        try:
            # Prompts alone: TRL would take columns such as `image` for its own.
            prompts = [{"prompt": row["prompt"]} for row in inputs]
            batch = super()._generate_and_score_completions(prompts)
        finally:
            self.dataset_rows = None
        advantages = self.rollout_func.newest.selection.advantages
        mine = torch.as_tensor(advantages[distributed.share(len(advantages))])
        if mine.shape != batch["advantages"].shape:
            raise RuntimeError(f"{len(mine)} advantages for {len(batch['advantages'])} rollouts")
        batch["advantages"] = mine.to(batch["advantages"])
        self.rollout_func.measure_noise(self, batch)
        return batch

    def _get_train_sampler(self, dataset: Dataset | None = None) -> "EpochOrder":
        return EpochOrder(super()._get_train_sampler(dataset), self)


class EpochOrder:
    """The data order as a function of (seed, epoch), for exact resume; that of epoch 0 is TRL's.

    TRL's generator runs on over epochs, so after a resume in epoch 1 it would repeat epoch 0.
    """

    def __init__(self, sampler: Any, trainer: Any) -> None:
        self.sampler, self.trainer = sampler, trainer

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        steps_per_epoch = len(self.sampler.data_source) // self.sampler.batch_size
        epoch = self.trainer.state.global_step // max(1, steps_per_epoch)
        self.sampler.generator.manual_seed(self.sampler.seed + 1_000_003 * epoch)
        return iter(self.sampler)


def no_rewards(completions: list[str], **_: Any) -> list[float]:
    """TRL's reward function: rewards and advantages come from pods/rollouts.py."""
    return [0.0] * len(completions)


def generate(
    trainer: Any, prompts: list[list[int]], evaluation: bool
) -> tuple[list[list[int]], list[list[float]] | None]:
    """TRL's own generation: one completion of each prompt, log-probabilities where vLLM is used.

    evaluation: the prompts differ, where training repeats each n times.
    """
    if not evaluation:
        return trainer._generate_single_turn(prompts, None, {})
    training, count = trainer.model.training, trainer.num_generations_eval
    trainer.model.eval()
    trainer.num_generations_eval = 1
    try:
        return trainer._generate_single_turn(prompts, None, {})
    finally:
        trainer.model.train(training)
        trainer.num_generations_eval = count
        trainer._last_loaded_step = -1  # the next training step loads and pays for its weights


@torch.no_grad()
def token_logprobs(trainer: Any, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """(tokens,) log-probabilities of a completion as the loss computes them (with temperature)."""
    training = trainer.model.training
    tokens = torch.tensor([[*prompt, *completion]], device=trainer.accelerator.device)
    logprobs, *_ = trainer._get_per_token_logps_and_entropies(
        trainer.model, tokens, torch.ones_like(tokens), len(completion), 1
    )
    trainer.model.train(training)  # Unsloth changes the mode
    return logprobs[0].float().cpu()


@contextmanager
def engine_slots(count: int) -> Iterator[None]:
    """A colocated vLLM that TRL builds in this block runs `count` sequences at once.

    TRL's value is m x P, so PODS would generate in waves and GRPO-GA in one.
    """
    from trl.trainer import grpo_trainer

    original = grpo_trainer.VLLMGeneration

    def build(**arguments: Any) -> Any:
        return original(**{**arguments, "max_num_seqs": count})

    grpo_trainer.VLLMGeneration = build
    try:
        yield
    finally:
        grpo_trainer.VLLMGeneration = original


def warm_up(trainer: Any) -> None:
    """Run generation, scoring, forward and backward of one step; weights and metrics stay.

    Kernels compile and caches fill before the clock starts: a compiled first step takes a minute on
    a GPU. A lack of memory also shows before the run has spent anything.
    """
    seen = trainer.state.num_input_tokens_seen
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer.model.train()
    with trainer.rollout_func.rehearsal():
        batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    size = trainer.args.per_device_train_batch_size
    per_row = {k: v[:size] for k, v in batch.items() if getattr(v, "ndim", 0) > 0}
    loss = trainer.compute_loss(trainer.model_wrapped, {**batch, **per_row})
    trainer.accelerator.backward(loss)
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()
    trainer.state.num_input_tokens_seen = seen
    set_seed(trainer.args.seed, device_specific=True)  # as TRL leaves it before the first step


@contextmanager
def no_trace(trainer: Any) -> Iterator[None]:
    """Losses and gradients computed in this block leave random states, metrics and gradients as
    they were: no gradient, because a step has not begun to accumulate."""
    metrics = {name: list(values) for name, values in trainer._metrics["train"].items()}
    trainer.model.train()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        trainer.model.zero_grad()
        trainer._metrics["train"].clear()
        trainer._metrics["train"].update(metrics)


def save(trainer: Any, folder: Path) -> None:
    """Adapter or weights, tokenizer, optimiser, scheduler and random states of this rank."""
    trainer.save_model(str(folder), _internal_call=True)
    trainer._save_optimizer_and_scheduler(str(folder))
    trainer._save_rng_state(str(folder))
