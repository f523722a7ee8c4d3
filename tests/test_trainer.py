"""Our trainer against the stock one, and what it feeds to the policy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trl
from datasets import Dataset
from transformers import TrainerCallback, set_seed

from pods.clock import Clock
from pods.config import TrainConfig
from pods.policy import Policy, load_policy, load_tokenizer
from pods.rollouts import Rollouts, group_rows
from pods.rules import select
from pods.trainer import PodsMixin, build_trainer, trl_arguments
from tests.configs import compose

SHORT = ["max_steps=3", "sampling.max_completion_length=8", "checkpoint.every_seconds=null"]


def rows(same: bool = False) -> Dataset:
    prompts = ["1+1=?" if same else f"{i % 10}+{i % 7}=?" for i in range(32)]
    return Dataset.from_list(
        [
            {"id": str(i), "prompt": f"<user>{p}<assistant>", "answer": str(i), "kind": "math"}
            for i, p in enumerate(prompts)
        ]
    )


def digits(completions: list[str], answers: list[str], kinds: list[str]) -> dict[str, list[float]]:
    """Rewards that differ between completions and use the answer, so that mix-ups show."""
    return {
        "correctness": [
            sum(map(ord, text)) % 17 + len(answer)
            for text, answer in zip(completions, answers, strict=True)
        ],
        "format": [-0.01 * len(text) for text in completions],
        "tags": [0.0 for _ in completions],
    }


def policy_of(config: TrainConfig) -> Policy:
    return load_policy(config, load_tokenizer(config.model.path))


def build(
    overrides: list[str], *, dataset: Dataset, keep: Callable | None = None, seed: int | None = 0
) -> tuple[Any, Rollouts]:
    config = compose(*SHORT, *overrides)
    m = config.kept_per_prompt
    keep = keep or (lambda total, rng: select(config.rule.name, total, m, rng=rng))
    rollouts = Rollouts(
        config.rollouts_per_prompt, digits, config.rewards.weights, keep, Clock(), seed
    )
    # The loop is not under test here; an idle callback takes its place.
    trainer = build_trainer(config, policy_of(config), dataset, rollouts, TrainerCallback())
    return trainer, rollouts


def adapter(trainer: Any) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in trainer.model.state_dict().items() if "lora_" in k}


def stock(overrides: list[str], dataset: Dataset) -> Any:
    """TRL's own trainer with our arguments; it scores with the same functions."""
    config = compose(*SHORT, *overrides)
    policy = policy_of(config)

    def function(name: str) -> Callable:
        def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
            return digits(completions, answer, [])[name]

        reward.__name__ = name
        return reward

    set_seed(config.seed)
    return trl.GRPOTrainer(
        model=policy.model,
        args=trl.GRPOConfig(**trl_arguments(config, policy)),
        train_dataset=dataset,
        processing_class=policy.tokenizer,
        reward_funcs=[function(name) for name in config.rewards.weights],
        peft_config=policy.peft_config,
    )


@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_keeping_everything_is_the_stock_trainer_to_the_bit(beta):
    overrides = ["algorithm=grpo", "kept_per_prompt=4", f"loss.beta={beta}"]
    theirs = stock(overrides, rows())
    theirs.train()
    ours, _ = build(overrides, dataset=rows(), seed=None)  # TRL does not reseed its rollouts
    ours.train()
    expected, actual = adapter(theirs), adapter(ours)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[key], actual[key]) for key in expected)
    assert any(value.abs().sum() > 0 for key, value in actual.items() if "lora_B" in key)


def test_the_policy_is_trained_on_m_rows_and_never_on_n():
    trainer, rollouts = build(
        ["rollouts_per_prompt=16", "kept_per_prompt=4", "micro_batch_size=2"], dataset=rows()
    )
    forwards, batches = [], []
    compute_loss = trainer._compute_loss

    def spy(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        forwards.append(len(inputs["completion_ids"]))
        batches.append(trainer._buffered_inputs)
        return compute_loss(model, inputs)

    trainer._compute_loss = spy
    trainer.train()
    assert forwards == [2] * (3 * 2 * 4 // 2)  # steps x prompts x m / micro-batch
    assert all(sum(len(b["completion_ids"]) for b in batch) == 2 * 4 for batch in batches)
    assert [len(g.completions) for g in rollouts.groups] == [16, 16]
    assert [len(g.kept) for g in rollouts.groups] == [4, 4]


def test_advantages_are_taken_on_the_kept_rollouts():
    trainer, rollouts = build(["rollouts_per_prompt=16", "kept_per_prompt=4"], dataset=rows())
    seen: list[torch.Tensor] = []
    inner = PodsMixin._generate_and_score_completions

    def spy(inputs: list[dict]) -> dict[str, Any]:
        batch = inner(trainer, inputs)
        kept = torch.tensor([[g.total[i] for i in g.kept] for g in rollouts.groups])
        by_hand = (kept - kept.mean(1, keepdim=True)) / (kept.std(1, keepdim=True) + 1e-4)
        torch.testing.assert_close(batch["advantages"], by_hand.flatten(), atol=1e-5, rtol=1e-5)
        seen.append(batch["advantages"])
        return batch

    trainer._generate_and_score_completions = spy
    trainer.train()
    assert len(seen) == 3
    assert all(a.abs().max() > 0.1 for a in seen)


def test_micro_batches_give_the_gradient_of_the_full_batch():
    updates = []
    for size in (8, 2):
        trainer, _ = build(
            ["rollouts_per_prompt=16", "kept_per_prompt=8", f"micro_batch_size={size}",
             "loss.type=grpo", "max_steps=1", "optimizer.max_grad_norm=1e9"],
            dataset=rows(),
        )  # fmt: skip
        gradients: dict[str, torch.Tensor] = {}

        class Keep(TrainerCallback):
            def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
                parameters = [(k, p) for k, p in model.named_parameters() if p.grad is not None]
                gradients.update({k: p.grad.clone() for k, p in parameters})  # noqa: B023

        trainer.add_callback(Keep())
        trainer.train()
        updates.append(gradients)
    assert updates[0].keys() == updates[1].keys()
    for key, value in updates[0].items():
        torch.testing.assert_close(updates[1][key], value, atol=1e-5, rtol=1e-4)


def test_groups_with_the_same_prompt_stay_apart():
    trainer, rollouts = build(["rollouts_per_prompt=8", "kept_per_prompt=4"], dataset=rows(True))
    trainer.train()
    first, second = rollouts.groups
    assert first.prompt == second.prompt
    assert first.question_id != second.question_id
    assert first.completions != second.completions
    assert len(first.kept) == len(second.kept) == 4


def test_evaluation_does_not_down_sample():
    trainer, rollouts = build(["rollouts_per_prompt=8", "kept_per_prompt=4"], dataset=rows())
    trainer.args.per_device_eval_batch_size = 4
    trainer.evaluate(rows().select(range(2)))
    assert all(g.kept == [0, 1, 2, 3] and len(g.completions) == 4 for g in rollouts.groups)


def test_rollouts_are_a_function_of_weights_seed_and_step():
    texts = []
    for seed in (1, 1, 2):
        trainer, rollouts = build(
            ["rollouts_per_prompt=8", "kept_per_prompt=4", "max_steps=1"], dataset=rows(), seed=seed
        )
        torch.rand(seed + 5)  # whatever was drawn before
        trainer.train()
        texts.append([g.completions for g in rollouts.groups])
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_an_epoch_has_its_own_order_and_resumes_with_it():
    trainer, _ = build(["rollouts_per_prompt=4", "kept_per_prompt=2"], dataset=rows())
    orders = []
    for step in (0, 16, 24):  # 32 rows, two prompts a step: 16 steps are an epoch
        trainer.state.global_step = step
        orders.append(list(trainer._get_train_sampler()))
    assert orders[1] != orders[0]
    assert orders[1] == orders[2]


@pytest.mark.parametrize(
    ("prompts", "names", "m", "message"),
    [
        (["a"] * 4, "aaab", 4, "straddles"),
        (["a"] * 3, "aaa", 2, "no groups of 2"),
        (["a"] * 4, "aa", 2, "no groups of 2"),
    ],
)
def test_groups_that_straddle_are_refused(prompts, names, m, message):
    with pytest.raises(RuntimeError, match=message):
        group_rows(prompts, [{"id": name} for name in names], m)


def test_a_library_default_that_creeps_in_is_found(monkeypatch):
    class Greedy(trl.GRPOConfig):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.weight_decay = 0.5

    monkeypatch.setattr(trl, "GRPOConfig", Greedy)
    with pytest.raises(Exception, match="weight_decay"):
        build(["kept_per_prompt=4"], dataset=rows())


def test_no_reference_pass_without_a_kl_term():
    trainer, _ = build(["kept_per_prompt=4", "loss.beta=0.0", "max_steps=1"], dataset=rows())
    assert trainer.ref_model is None
    passes = []
    inner = trainer._get_per_token_logps_and_entropies

    def spy(*args: Any, **kwargs: Any) -> Any:
        passes.append(1)
        return inner(*args, **kwargs)

    trainer._get_per_token_logps_and_entropies = spy
    trainer.train()
    assert len(passes) == trainer.args.gradient_accumulation_steps  # the loss, nothing else


def test_an_empty_completion_is_one_end_token(monkeypatch):
    trainer, rollouts = build(
        ["kept_per_prompt=4", "rollouts_per_prompt=4", "rule=all"], dataset=rows()
    )
    monkeypatch.setattr(trainer, "_generate_single_turn", lambda ids, *_: ([[] for _ in ids], None))
    trainer.dataset_rows = list(rows().select([0, 0, 0, 0]))
    trainer.model.train()
    out = rollouts([row["prompt"] for row in trainer.dataset_rows], trainer)
    assert out["completion_ids"] == [[trainer.processing_class.eos_token_id]] * 4
    assert rollouts.groups[0].lengths == [1] * 4
    assert np.isfinite(rollouts.groups[0].total).all()


def test_output_stays_in_the_runs_folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer, _ = build(["kept_per_prompt=4", "max_steps=1"], dataset=rows())
    trainer.train()
    assert [p.name for p in tmp_path.iterdir() if p.name != "checkpoints"] == []
