"""The update with and without what has no gradient: equal weights, fewer rows and passes."""

from functools import partial
from itertools import product

import pytest
import torch
import transformers
from datasets import Dataset

from pods import PodsConfig, PodsTrainer
from pods.algorithms import ALGORITHMS
from pods.batch import Rollout
from pods.pods_config import LOSSES
from tests.filled_steps import TINY, Scripted, rows_of_each

STEPS = 5
DATA = Dataset.from_dict({"prompt": [f"{i}+{i}=" for i in range(12)]})
SETTINGS = {
    "num_generations": 4,
    "rollouts_per_prompt": 8,
    "max_completion_length": 8,
    "max_steps": STEPS,
    "optim": "sgd",
    "learning_rate": 0.3,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 1e6,  # logged, never reached
    "gradient_checkpointing": False,
    "shuffle_dataset": False,
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
}


class Uneven(Scripted):
    """Prompts of 2 to 6 tokens, completions of 1 to 7 tokens."""

    def sample(self, wanted):
        return [
            Rollout([7] * (int(prompt) % 5) + rollout.prompt_ids[1:], rollout.completion, "x")
            for rollout, (prompt, _) in zip(super().sample(wanted), wanted, strict=True)
        ]


def half_equal(prompts, completion_ids, **_):
    """Rollouts of every second prompt have equal rewards."""
    values = zip(prompts, completion_ids, strict=True)
    return [float(sum(ids) % 3) * (int(prompt[0]) % 2) for prompt, ids in values]


def nobody(prompts, **_):
    return [1.0] * len(prompts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random model with rotary positions."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(transformers.AutoTokenizer.from_pretrained(TINY)),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    folder = tmp_path_factory.mktemp("small")
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def trainer_of(folder, rows=4, reward=half_equal, algorithm=None, sampler=Uneven, **changes):
    """rows: of a micro-batch."""
    P = 2
    values = SETTINGS | {"output_dir": str(folder / "out"), "per_device_train_batch_size": rows}
    m = changes.get("num_generations", SETTINGS["num_generations"])
    values["gradient_accumulation_steps"] = P * m // rows
    transformers.set_seed(0)
    trainer = PodsTrainer(
        str(folder),
        reward,
        PodsConfig(**values | changes),
        DATA,
        processing_class=transformers.AutoTokenizer.from_pretrained(TINY),
        algorithm=algorithm,
        sampler=sampler,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.shapes = []  # of every forward pass: rows, tokens of prompt and completion
    trainer.model.register_forward_pre_hook(
        lambda _, __, inputs: trainer.shapes.append(tuple(inputs["input_ids"].shape)),
        with_kwargs=True,
    )
    return trainer


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def compare(folder, **arguments):
    """Both trainers, after training; their weights are equal but for rounding."""
    plain, lean = (trainer_of(folder, lean_update=on, **arguments) for on in (False, True))
    start = weights(plain).clone()
    for trainer in (plain, lean):
        transformers.set_seed(1)  # the order of the rows
        trainer.train()
    assert (weights(plain) - start).abs().max() > 1e-3
    assert (weights(plain) - weights(lean)).abs().max() < 1e-5
    for step in range(STEPS):
        logs, expected = (trainer.state.log_history[step] for trainer in (lean, plain))
        for name in ("loss", "grad_norm", "reward", "frac_reward_zero_std"):
            assert (name in logs) == (name in expected)
            if name in expected:
                assert logs[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6), name
    return plain, lean


three_of_each = partial(rows_of_each, count=3)


@pytest.mark.parametrize(
    ("loss", "rows"),
    [
        *[("grpo", 2), ("bnpo", 2), ("dapo", 8)],  # a mean over rows, micro-batches, tokens
        *(pytest.param(*case, marks=pytest.mark.slow) for case in product(LOSSES, [2, 4, 8])),
    ],
)
def test_weights_are_those_of_all_rows_for_each_loss(folder, loss, rows):
    compare(folder, loss_type=loss, rows=rows, algorithm=three_of_each)


OTHER_SETTINGS = {
    "two iterations of two updates": {
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "num_iterations": 2,
    },
    "two generations an update": {"steps_per_generation": 2},
    "one ratio a completion": {"importance_sampling_level": "sequence", "num_iterations": 2},
    "truncated masked": {"mask_truncated_completions": True, "loss_type": "dr_grpo"},
    "truncated masked, bnpo": {"mask_truncated_completions": True, "loss_type": "bnpo"},
    "two iterations, dapo": {"num_iterations": 2, "loss_type": "dapo"},
    "two iterations, cispo": {"num_iterations": 2, "loss_type": "cispo"},
    "two iterations, sapo": {"num_iterations": 2, "loss_type": "sapo"},
    "off-policy rows masked, vespo": {
        "num_iterations": 2,
        "loss_type": "vespo",
        "off_policy_mask_threshold": 0.01,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", OTHER_SETTINGS.values(), ids=OTHER_SETTINGS)
def test_weights_are_those_of_all_rows_with_other_settings(folder, changes):
    compare(folder, rows=2, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 8])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_weights_are_those_of_all_rows_for_each_algorithm(folder, name, rows):
    m = 8 if name == "grpo_ga" else 4  # it trains on all n
    compare(folder, rows=rows, num_generations=m, algorithm=ALGORITHMS[name])


def test_fewer_micro_batches_are_computed(folder):
    """Of 8 rows in micro-batches of 2, two of each prompt have an advantage."""
    plain, lean = compare(folder, rows=2, algorithm=partial(rows_of_each, count=2))
    assert [rows for rows, _ in plain.shapes] == [2] * 4 * STEPS
    assert [rows for rows, _ in lean.shapes] == [2] * 2 * STEPS
    tokens, of_all = (sum(tokens for _, tokens in t.shapes) for t in (lean, plain))
    assert tokens < 0.5 * of_all


@pytest.mark.parametrize(
    "loss", ["grpo", *(pytest.param(loss, marks=pytest.mark.slow) for loss in ("dapo", "bnpo"))]
)
def test_an_update_without_rows_decays_weights_as_before(folder, loss):
    """Adam skips a parameter whose gradient is None."""
    changes = {"optim": "adamw_torch", "weight_decay": 0.1, "reward": nobody, "loss_type": loss}
    _, lean = compare(folder, rows=2, **changes)
    assert len(lean.shapes) == STEPS  # the cheapest pass that gives gradients
    assert [log.get("entropy") for log in lean.state.log_history] == [None] * (STEPS + 1)


READ_ALL_ROWS = [
    {"beta": 0.1},
    {"entropy_coef": 0.1},
    {"use_adaptive_entropy": True},
    {"top_entropy_quantile": 0.5},
    {"pad_to_multiple_of": 8},
]


@pytest.mark.parametrize("changes", READ_ALL_ROWS, ids=str)
def test_all_rows_are_computed_where_the_loss_reads_them(folder, changes):
    trainer = trainer_of(folder, lean_update=True, max_steps=1, **changes)
    trainer.train()
    assert sum(rows for rows, _ in trainer.shapes[-2:]) == 8
