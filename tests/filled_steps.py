"""Steps with fewer rows than the budget, by PodsTrainer alone: the gradient of every update.

Imported after Unsloth, which must come first: both sides of tests/nightly/unsloth_drift.py run all
of it, and test_unsloth_drift.py compares them.
"""

from typing import Any

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import PrinterCallback, TrainerCallback, set_seed

from pods import PodsConfig, PodsTrainer
from pods.batch import Rollout, Selection
from pods.config.paths import PACKAGE
from pods.engines import Completion
from pods.models.policy import load_model, load_tokenizer

TINY = str(PACKAGE / "tiny_policy")
KEPT = [3, 1, 0]  # rows of each prompt that are kept, by step: 6, 2 and none of the budget of 8
ADVANTAGES = np.array([0.7, -1.1, 0.4, 1.3, -0.2, -0.9])
LOSSES = ["grpo", "dr_grpo", "bnpo", "dapo", "cispo", "vespo", "sapo", "luspo"]
KL = {"beta": 0.3}
ON_A_CPU = {  # of three steps with m = 4
    "num_generations": 4,
    "max_completion_length": 8,
    "max_steps": 3,
    "lr_scheduler_type": "constant",
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
    "disable_tqdm": True,
    "gradient_checkpointing": False,
}
# Loss, rows of a micro-batch, settings.
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    **{f"{loss}, KL, micro-batches of 2": (loss, 2, KL) for loss in LOSSES},
    "bnpo, KL, one micro-batch": ("bnpo", 8, KL),
    "grpo, KL, truncated masked": ("grpo", 2, KL | {"mask_truncated_completions": True}),
    "grpo, entropy bonus, KL": ("grpo", 2, KL | {"entropy_coef": 0.1}),
    "grpo, adaptive entropy": (
        "grpo",
        2,
        {"use_adaptive_entropy": True, "entropy_coef_delta": 0.1},
    ),
    "dapo, entropy bonus": ("dapo", 2, {"entropy_coef": 0.1}),
}


def rows_of_each(step, count, advantages=ADVANTAGES):
    """The first `count` rows of each prompt, whatever m is."""
    batch = yield step.prompts, step.m
    kept = np.flatnonzero(np.arange(len(batch)) % step.m < count)
    return Selection(kept, advantages[: len(kept)])


def first_rows(step):
    """KEPT rows of each prompt; made-up steps come before: more than three."""
    return (yield from rows_of_each(step, KEPT[step.number % len(KEPT)]))


class Scripted:
    """Rollout i of a prompt is a function of both, of 2 to 7 tokens; each third is clipped."""

    def __init__(self, trainer):
        self.end_token = trainer.processing_class.eos_token_id

    def sample(self, wanted):
        rollouts = []
        for prompt, i in wanted:
            random = np.random.default_rng([int(prompt), i])
            ids = random.integers(5, 20, 7 if i == 0 else 2 + i % 4).tolist()
            ids[-1] = 5 if i % 3 == 1 else self.end_token
            rollouts.append(Rollout([7, 8, 9 + int(prompt)], Completion(ids, i % 3 == 1), "x"))
        return rollouts


def model_with_adapter():
    """The embedded policy with an adapter, and with what Unsloth's loader adds."""
    set_seed(0)
    model = load_model(TINY, "float32")
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "o_proj"]))
    model.for_training = lambda *_, **__: model.train()
    model.for_inference = lambda *_, **__: model.eval()
    model.max_seq_length = 64
    model._unsloth_gradient_checkpointing = False
    return model


def gradients(folder, loss: str, rows: int, settings: dict[str, Any]) -> list[list[float]]:
    """(3 steps, parameters) the gradient of each update."""
    arguments = PodsConfig(
        output_dir=str(folder),
        algorithm="pods",
        rollouts_per_prompt=4,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=2 * 4 // rows,
        loss_type=loss,
        optim="sgd",
        learning_rate=1e-30,  # moves no weight
        max_grad_norm=0,
        shuffle_dataset=False,
        save_strategy="no",
        epsilon_high=0.28,  # which Unsloth sets otherwise
        **ON_A_CPU | {"mask_truncated_completions": False, "beta": 0.0} | settings,
    )
    held: list[torch.Tensor] = []

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, *_, **__):
            trained = [p for p in trainer.model.parameters() if p.requires_grad]
            held.append(torch.cat([p.grad.flatten() for p in trained]))

    trainer = PodsTrainer(
        model_with_adapter(),
        lambda completions, **_: [float(len(c)) for c in completions],
        arguments,
        Dataset.from_dict({"prompt": [f"{i}+{i}=" for i in range(8)]}),
        processing_class=load_tokenizer(TINY),
        algorithm=first_rows,
        sampler=Scripted,
    )
    build_trl_batch = trainer.build_trl_batch

    def repeatable(record):
        """Both trainers shuffle the rows, and sample other numbers before."""
        batch = build_trl_batch(record)
        torch.manual_seed(record.step.number)
        return batch

    trainer.build_trl_batch = repeatable
    torch.manual_seed(1)
    for name, parameter in trainer.model.named_parameters():
        if "lora_B.default" in name:  # away from the reference, which the trainer has copied
            torch.nn.init.normal_(parameter, std=0.2)
    trainer.add_callback(Watch())
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return torch.stack(held).tolist()


def report(folder) -> dict[str, list[list[float]]]:
    """The gradients of every case."""
    return {name: gradients(folder, *case) for name, case in CASES.items()}
