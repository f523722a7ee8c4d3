"""Our trainer against the stock one, and the rows that it trains on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import trl
from datasets import Dataset
from peft import AutoPeftModelForCausalLM
from pods.training.rehearsal import rehearsal
from transformers import TrainerCallback, set_seed

from pods.clock import Clock
from pods.config.keys import TrainConfig
from pods.engines import Live, Request, Work, choose
from pods.engines.trl import TrlEngine
from pods.models.policy import Policy, load_policy, load_tokenizer
from pods.rollouts import Rollouts, RuleError, Step, group_rows
from pods.rules import Batch, Selection
from pods.seam import PodsMixin
from pods.trainer import build_trainer, trl_arguments
from tests.configs import compose
from tests.conftest import ROOT

SHORT = ["max_steps=3", "sampling.max_completion_length=8", "checkpoint.every_seconds=null"]


def rows(same: bool = False) -> Dataset:
    prompts = ["1+1=?" if same else f"{i % 10}+{i % 7}=?" for i in range(32)]
    return Dataset.from_list(
        [
            {"id": str(i), "prompt": f"<user>{p}<assistant>", "answer": str(i), "kind": "math"}
            for i, p in enumerate(prompts)
        ]
    )


class Digits:
    """Rewards that differ between completions and use the answer, so that mix-ups show."""

    def __init__(self, weights: dict[str, float]) -> None:
        self.weights, self.scorer = weights, SimpleNamespace(timeouts=0)

    def __call__(
        self, rows: Sequence[dict], texts: Sequence[str], ids: Sequence[list[int]], step: int
    ) -> dict[str, list[float]]:
        return {
            "correctness": [
                float(sum(map(ord, text)) % 17 + len(row["answer"]))
                for text, row in zip(texts, rows, strict=True)
            ],
            "format": [-0.01 * len(text) for text in texts],
            "tags": [0.3 * (len(text) % 3) for text in texts],
        }


WEIGHTS = {"correctness": 1.0, "format": 0.7, "tags": 1.3}


def policy_of(config: TrainConfig) -> Policy:
    return load_policy(config, load_tokenizer(config.model.path))


def build(
    overrides: list[str], *, dataset: Dataset, stock_rng: bool = False
) -> tuple[Any, Rollouts]:
    """stock_rng: TRL generates without being reseeded, as the stock trainer does."""
    config = compose(*SHORT, *overrides)
    policy = policy_of(config)
    config.engine.name = choose.for_training(config)[0]
    rollouts = Rollouts(config, choose.build_for_training(config, policy), Digits(WEIGHTS), Clock())
    rollouts.reseed = not stock_rng
    # The loop is not under test here; an idle callback takes its place.
    trainer = build_trainer(config, policy, dataset, rollouts, TrainerCallback())
    return trainer, rollouts


def adapter(trainer: Any) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in trainer.model.state_dict().items() if "lora_" in k}


def stock(overrides: list[str], dataset: Dataset) -> Any:
    """TRL's own trainer with our arguments; it scores with the same functions."""
    config = compose(*SHORT, *overrides)
    policy = policy_of(config)
    digits = Digits(WEIGHTS)

    def function(name: str) -> Callable:
        def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
            return digits([{"answer": a} for a in answer], completions, [], 0)[name]

        reward.__name__ = name
        return reward

    arguments = trl_arguments(config, policy)
    set_seed(config.seed)
    return trl.GRPOTrainer(
        model=policy.model,
        args=trl.GRPOConfig(**arguments, reward_weights=list(WEIGHTS.values())),
        train_dataset=dataset,
        processing_class=policy.tokenizer,
        reward_funcs=[function(name) for name in WEIGHTS],
        peft_config=policy.peft_config,
    )


@pytest.mark.parametrize(("m", "beta"), [(4, 0.0), (4, 0.04), (16, 0.0)])
def test_keeping_everything_is_the_stock_trainer_to_the_bit(m, beta):
    overrides = ["algorithm=grpo", f"kept_per_prompt={m}", f"loss.beta={beta}"]
    theirs = stock(overrides, rows())
    theirs.train()
    ours, _ = build([*overrides, "engine=trl"], dataset=rows(), stock_rng=True)
    ours.train()
    expected, actual = adapter(theirs), adapter(ours)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[key], actual[key]) for key in expected)
    assert any(value.abs().sum() > 0 for key, value in actual.items() if "lora_B" in key)


def test_the_policy_is_trained_on_m_rows_and_never_on_n():
    trainer, rollouts = build(
        ["prompts_per_step=2", "rollouts_per_prompt=16", "kept_per_prompt=4", "micro_batch_size=2"],
        dataset=rows(),
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
    step = rollouts.newest
    assert step.batch.shape == (2, 16)
    assert [len(step.kept_of(p)) for p in range(2)] == [4, 4]


def trained_advantages(trainer: Any, rollouts: Rollouts) -> list[tuple[Step, torch.Tensor]]:
    """Train; the rollouts and the advantages in TRL's batch of every step."""
    seen: list[tuple[Step, torch.Tensor]] = []
    inner = PodsMixin._generate_and_score_completions

    def spy(inputs: list[dict]) -> dict[str, Any]:
        batch = inner(trainer, inputs)
        seen.append((rollouts.newest, batch["advantages"]))
        tokens = [rollouts.newest.completions[p][i].token_ids for p, i in places(rollouts.newest)]
        trained = [
            row[mask.bool()].tolist()
            for row, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
        ]
        assert trained == tokens  # each advantage stands beside its own completion
        return batch

    trainer._generate_and_score_completions = spy
    trainer.train()
    assert len(seen) == 3
    return seen


def places(step: Step) -> list[tuple[int, int]]:
    return [divmod(int(i), step.batch.shape[1]) for i in step.selection.kept]


def test_advantages_are_taken_on_the_kept_rollouts():
    trainer, rollouts = build(
        ["prompts_per_step=2", "rollouts_per_prompt=16", "kept_per_prompt=4"], dataset=rows()
    )
    for step, advantages in trained_advantages(trainer, rollouts):
        kept = torch.tensor(step.batch.rewards.reshape(-1)[step.selection.kept]).view(2, 4)
        by_hand = (kept - kept.mean(1, keepdim=True)) / (kept.std(1, keepdim=True) + 1e-4)
        torch.testing.assert_close(advantages, by_hand.flatten(), atol=1e-5, rtol=1e-5)
        assert advantages.abs().max() > 0.1


@pytest.mark.parametrize("own", [False, True])
def test_uneven_groups_are_trained_with_exactly_their_advantages(own):
    """3 rollouts of the first prompt and 13 of the second, with advantages of the rule or not."""
    trainer, rollouts = build(
        ["prompts_per_step=2", "rollouts_per_prompt=16", "kept_per_prompt=8", "micro_batch_size=4"],
        dataset=rows(),
    )
    chosen = np.array([2, 5, 11, *range(17, 30)])
    numbers = np.linspace(-1, 1, 16)

    def uneven(batch: Batch, budget: int, rng: Any) -> Selection:
        return Selection(chosen[::-1], numbers[::-1] if own else None)

    rollouts.rule = uneven
    for step, advantages in trained_advantages(trainer, rollouts):
        assert step.selection.kept.tolist() == chosen.tolist()
        assert [len(step.kept_of(p)) for p in range(2)] == [3, 13]
        expected = numbers
        if not own:
            kept = [step.batch.rewards[p, step.kept_of(p)].astype(float) for p in range(2)]
            expected = np.concatenate([(r - r.mean()) / (r.std(ddof=1) + 1e-4) for r in kept])
        np.testing.assert_allclose(advantages.numpy(), expected, atol=1e-5)


def test_micro_batches_give_the_gradient_of_the_full_batch():
    updates = []
    for size in (8, 2):
        trainer, _ = build(
            ["prompts_per_step=2",
             "rollouts_per_prompt=16", "kept_per_prompt=8", f"micro_batch_size={size}",
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
    trainer, rollouts = build(
        ["prompts_per_step=2", "rollouts_per_prompt=8", "kept_per_prompt=4"], dataset=rows(True)
    )
    trainer.train()
    step = rollouts.newest
    assert step.rows[0]["prompt"] == step.rows[1]["prompt"]
    assert step.rows[0]["id"] != step.rows[1]["id"]
    assert step.texts[0] != step.texts[1]
    assert len(step.kept_of(0)) == len(step.kept_of(1)) == 4


def first_rollouts(*overrides: str) -> tuple[list[str], list[list[str]]]:
    """Question ids and texts of the first step."""
    trainer, rollouts = build([*overrides, "max_steps=1"], dataset=rows())
    torch.rand(5)  # whatever was drawn before
    trainer.train()
    return rollouts.newest.batch.question_ids.tolist(), rollouts.newest.texts


@pytest.mark.parametrize("engine", ["transformers", "trl"])
def test_rollouts_are_a_function_of_weights_seed_and_step(engine):
    sizes = ["prompts_per_step=2", "rollouts_per_prompt=8", "kept_per_prompt=4", f"engine={engine}"]
    first = first_rollouts(*sizes, "seed=1")
    assert first_rollouts(*sizes, "seed=1") == first
    assert first_rollouts(*sizes, "seed=2")[1] != first[1]


def test_arms_with_one_seed_share_their_first_rollouts():
    """GRPO with n = 16 and PODS with n = 64, whatever the number of sequences at once."""
    sizes = ["seed=3", "sampling.max_completion_length=24", "prompts_per_step=2"]
    ids, pods = first_rollouts(*sizes, "rollouts_per_prompt=64", "engine.max_sequences=50")
    same_ids, grpo = first_rollouts(*sizes, "algorithm=grpo", "kept_per_prompt=16")
    assert ids == same_ids
    assert [group[:16] for group in pods] == grpo
    assert len({text for group in pods for text in group}) > 64


def test_an_epoch_has_its_own_order_and_resumes_with_it():
    trainer, _ = build(
        ["prompts_per_step=2", "rollouts_per_prompt=4", "kept_per_prompt=2"], dataset=rows()
    )
    orders = []
    for step in (0, 16, 24):  # 32 rows, two prompts a step: 16 steps are an epoch
        trainer.state.global_step = step
        orders.append(list(trainer._get_train_sampler()))
    assert orders[1] != orders[0]
    assert orders[1] == orders[2]
    drawn = torch.Generator().manual_seed(trainer.args.seed + 1_000_003)  # as in earlier runs
    assert list(dict.fromkeys(orders[1])) == torch.randperm(32, generator=drawn).tolist()


REMAINING = {15.0: 0.5, 30.0: 1.0, 165.0: 0.5, 299.0: 1 / 270}  # warm-up 30 s, then down to 300 s


@pytest.mark.parametrize("seconds", REMAINING)
def test_arms_with_unlike_steps_have_one_learning_rate_at_equal_seconds(seconds):
    by_time = ["optimizer.schedule=linear", "optimizer.schedule_by=seconds",
               "budget.train_seconds=300", "optimizer.warmup_steps=0.1"]  # fmt: skip
    for steps in (1, 7):
        trainer, rollouts = build(by_time, dataset=rows())
        trainer.create_optimizer_and_scheduler(num_training_steps=3)
        assert trainer.lr_scheduler.get_last_lr()[0] == 0.0  # the warm-up starts at 0 s
        for step in range(1, steps + 1):
            rollouts.clock.train_seconds = seconds * step / steps
            trainer.optimizer.step()
            trainer.lr_scheduler.step()
        rates = [group["lr"] for group in trainer.optimizer.param_groups]
        assert rates == pytest.approx([1e-3 * REMAINING[seconds]] * len(rates))


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
    settings = ["kept_per_prompt=4", "loss.beta=0.0", "max_steps=1", "engine=trl"]  # no guard
    trainer, _ = build(settings, dataset=rows())
    assert trainer.ref_model is None
    passes = []
    inner = trainer._get_per_token_logps_and_entropies

    def spy(*args: Any, **kwargs: Any) -> Any:
        passes.append(1)
        return inner(*args, **kwargs)

    trainer._get_per_token_logps_and_entropies = spy
    trainer.train()
    assert len(passes) == trainer.args.gradient_accumulation_steps  # the loss, nothing else


@pytest.mark.parametrize(
    ("drawn", "ids", "clipped"),
    [
        ([5, 6, 1], [5, 6, 1], False),
        ([5, 2, 9, 9], [5, 2], False),  # the model's other end token, then padding
        ([1, 5], [1], False),
        ([5, 6, 7], [5, 6, 7], True),  # ended by the length limit
        ([], [1], False),
    ],
)
def test_a_completion_of_trl_is_clipped_where_no_end_token_came(drawn, ids, clipped):
    likely = [-0.1 * i for i in range(len(drawn))]
    found = TrlEngine([1, 2])._completion(drawn, likely)
    assert (found.token_ids, found.clipped) == (ids, clipped)
    assert found.logprobs == likely[: len(ids)]


def test_an_empty_completion_of_trl_is_one_end_token(monkeypatch):
    trainer, rollouts = build(["kept_per_prompt=4", "engine=trl"], dataset=rows())
    monkeypatch.setattr(trainer, "_generate_single_turn", lambda ids, *_: ([[] for _ in ids], None))
    work = Work([Request([5, 6], [1, 2]), Request([7], [3, 4])], Live(trainer.model, 0))
    ((_, done),) = rollouts.engine.generate([work])
    end = trainer.processing_class.eos_token_id
    assert [[c.token_ids for c in group] for group in done] == [[[end], [end]], [[end], [end]]]
    assert not any(c.clipped for group in done for c in group)


def test_output_stays_in_the_runs_folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer, _ = build(["kept_per_prompt=4", "max_steps=1"], dataset=rows())
    trainer.train()
    assert [p.name for p in tmp_path.iterdir() if p.name != "checkpoints"] == []


def test_an_adapter_finds_its_base_from_any_folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where model.path=pods/tiny_policy is a folder
    trainer, _ = build(["kept_per_prompt=4", "max_steps=1"], dataset=rows())
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    monkeypatch.chdir(tmp_path)
    loaded = AutoPeftModelForCausalLM.from_pretrained("adapter")
    saved = {k.replace(".default", ""): v for k, v in adapter(trainer).items()}
    found = {k.replace(".default", ""): v for k, v in loaded.state_dict().items() if "lora_" in k}
    assert saved.keys() == found.keys()
    assert all(torch.equal(saved[key], found[key]) for key in saved)


def test_a_step_that_fails_leaves_the_rules_history_as_it_was():
    class Counting:
        seen = 0

        def __call__(self, batch: Batch, budget: int, rng: Any) -> range:
            self.seen += 1
            return range(budget - (self.seen == 2))  # one too few in the second step

        def state(self) -> dict:
            return {"seen": self.seen}

        def load(self, state: dict) -> None:
            self.seen = state["seen"]

    trainer, rollouts = build(
        ["prompts_per_step=2", "rollouts_per_prompt=8", "kept_per_prompt=4"], dataset=rows()
    )
    rollouts.rule = Counting()
    with pytest.raises(RuleError, match=r"rule Counting failed at step 1: .*7 indices, not 8"):
        trainer.train()
    assert rollouts.state() == {"seen": 1}
    with rehearsal(trainer):
        rollouts.rule.seen = 9
    assert rollouts.state() == {"seen": 1}
