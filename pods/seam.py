"""Stage 6: the one file that uses private names of TRL, of transformers' Trainer and of Unsloth.

Three methods of GRPOTrainer are extended; everything else of the update is TRL's. `num_generations`
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

from pods import ranks


class PodsMixin:
    """Over GRPOTrainer: hands dataset rows to the rollouts, takes advantages from them, orders the
    data by epoch, and lets the schedule follow the training time."""

    dataset_rows: list[dict] | None = None
    schedule_seconds: float | None = None  # s of training that the schedule spans; None: max_steps

    def _generate_and_score_completions(self, inputs: list[dict]) -> dict[str, Any]:
        self.dataset_rows = inputs  # TRL's rollout_func gets prompts without their columns
        # TRL takes whatever does not end with the tokenizer's own end token for truncated.
        masking, self.mask_truncated_completions = self.mask_truncated_completions, False
        try:
            # Prompts alone: TRL would take columns such as `image` for its own.
            prompts = [{"prompt": row["prompt"]} for row in inputs]
            batch = super()._generate_and_score_completions(prompts)
        finally:
            self.dataset_rows, self.mask_truncated_completions = None, masking
        step = self.rollout_func.newest
        advantages = step.selection.advantages
        share = ranks.share(len(advantages))
        mine = torch.as_tensor(advantages[share])
        if mine.shape != batch["advantages"].shape:
            raise RuntimeError(f"{len(mine)} advantages for {len(batch['advantages'])} rollouts")
        batch["advantages"] = mine.to(batch["advantages"])
        if masking:
            clipped = step.batch.clipped.reshape(-1)[step.selection.kept[share]]
            mask = batch["completion_mask"]
            mask[torch.as_tensor(clipped, device=mask.device)] = 0
            batch["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        self.rollout_func.measure_noise(self, batch)
        return batch

    def _get_train_sampler(self, dataset: Dataset | None = None) -> "EpochOrder":
        return EpochOrder(super()._get_train_sampler(dataset), self)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """transformers' schedule over steps, or the same one over the milliseconds of training.

        The second reads the clock whenever it is stepped, before each step.
        """
        if self.schedule_seconds is None:
            return super().create_scheduler(num_training_steps, optimizer)
        schedule = super().create_scheduler(round(1000 * self.schedule_seconds), optimizer)
        factor, clock = schedule.lr_lambdas[0], self.rollout_func.clock
        groups = len(schedule.lr_lambdas)  # of parameters, all with the same factor
        schedule.lr_lambdas = [lambda _: factor(1000 * clock.train_seconds)] * groups
        return schedule


class EpochOrder:
    """The data order as a function of (seed, epoch), for exact resume; that of epoch 0 is TRL's.

    TRL's generator runs on over epochs, so after a resume in epoch 1 it would repeat epoch 0.
    """

    def __init__(self, sampler: Any, trainer: Any) -> None:
        self.sampler, self.trainer = sampler, trainer

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        generations = len(self.sampler.data_source) // self.sampler.batch_size
        steps_per_epoch = generations * self.trainer.num_iterations
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


@contextmanager
def full_length(trainer: Any, wanted: bool) -> Iterator[None]:
    """Where wanted, completions of `generate` in this block run to the length limit."""
    if trainer.use_vllm:
        holder, name = trainer.vllm_generation, "generation_kwargs"
        changed = holder.generation_kwargs | {"ignore_eos": True, "stop_token_ids": [], "stop": []}
    else:
        holder, name = trainer.generation_config, "min_new_tokens"
        changed = trainer.max_completion_length
    before = getattr(holder, name)
    setattr(holder, name, changed if wanted else before)
    try:
        yield
    finally:
        setattr(holder, name, before)


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
    """Generation, scoring, forward and backward of one step, within `rehearsal`, at the longest
    prompts and completions that the config allows; weights, optimiser, random states and metrics
    stay.

    Kernels compile and caches fill before the clock starts: a compiled first step takes a minute on
    a GPU. A lack of memory shows before the run has spent anything.
    """
    rollouts, seen = trainer.rollout_func, trainer.state.num_input_tokens_seen
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    size = trainer.args.per_device_train_batch_size
    per_row = {k: v[:size] for k, v in batch.items() if getattr(v, "ndim", 0) > 0}
    with rollouts.clock.phase("update"), optimizer_memory(trainer):
        loss = trainer.compute_loss(trainer.model_wrapped, {**batch, **per_row})
        trainer.accelerator.backward(loss)
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()
    trainer.state.num_input_tokens_seen = seen
    set_seed(trainer.args.seed, device_specific=True)  # as TRL leaves it before the first step


@contextmanager
def optimizer_memory(trainer: Any) -> Iterator[None]:
    """Hold the memory of Adam's two moments, which the first optimiser step will take."""
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    optimizer = str(trainer.args.optim).lower()
    moments = 2 if "adam" in optimizer and not trainer.optimizer.state else 0  # resumed: there
    held = [
        torch.empty_like(p, dtype=torch.uint8 if "8bit" in optimizer else p.dtype)
        for p in trained
        for _ in range(moments)
    ]
    yield
    held.clear()


def packing(trainer: Any) -> dict[str, float]:
    """What Unsloth's update has decided about packing a micro-batch into one sequence: whether it
    packs, and from how many tokens on it does not. Empty before its first update, and elsewhere.

    Any error, or log-probabilities that differ from those of single rows, turns packing off for
    the rest of the run; Unsloth says so only under UNSLOTH_ENABLE_LOGGING=1.
    """
    found = {
        "update/packed": getattr(trainer.model, "_unsloth_seq_packing_grad_ok", None),
        "update/unpacked_from_tokens": getattr(
            trainer.model, "_unsloth_seq_packing_grad_unsafe_T", None
        ),
    }
    return {name: float(value) for name, value in found.items() if value is not None}


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
