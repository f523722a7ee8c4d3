"""One untimed step that leaves no trace: kernels compile and caches fill before the clock starts.

A compiled first step takes a minute on a GPU and would be charged to whichever run it opens. The
warm-up generates and differentiates a full step, forgets both, and is reported as `warmup` seconds.
It also meets a lack of memory before the run has spent anything.
"""

from typing import Any

from accelerate.utils import set_seed


def warm_up(trainer: Any) -> None:
    """Run generation, scoring, forward and backward of one step; weights and metrics stay."""
    seen = trainer.state.num_input_tokens_seen
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    size = trainer.args.per_device_train_batch_size
    per_row = {k: v[:size] for k, v in batch.items() if getattr(v, "ndim", 0) > 0}
    loss = trainer.compute_loss(trainer.model_wrapped, {**batch, **per_row})
    trainer.accelerator.backward(loss)
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()
    trainer.state.num_input_tokens_seen = seen
    set_seed(trainer.args.seed, device_specific=True)  # as TRL leaves it before the first step
