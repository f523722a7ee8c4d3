"""The update with and without what has no gradient: equal weights, fewer rows and passes."""

from functools import partial

import pytest
import torch
import transformers
from datasets import Dataset

from pods import PodsConfig, PodsTrainer
from pods.batch import Rollout
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
    return small_model(tmp_path_factory.mktemp("small"))


def small_model(folder):
    """A folder with a small random model of rotary positions."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(transformers.AutoTokenizer.from_pretrained(TINY)),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def trainer_of(
    folder, rows=4, reward=half_equal, algorithm=None, sampler=Uneven, model=None, **changes
):
    """rows: of a micro-batch. model: None for the one in the folder."""
    P = 2
    values = SETTINGS | {"output_dir": str(folder / "out"), "per_device_train_batch_size": rows}
    m = changes.get("num_generations", SETTINGS["num_generations"])
    values["gradient_accumulation_steps"] = P * m // rows
    transformers.set_seed(0)
    trainer = PodsTrainer(
        model or str(folder),
        reward,
        PodsConfig(**values | changes),
        DATA,
        processing_class=transformers.AutoTokenizer.from_pretrained(TINY),
        algorithm=algorithm,
        sampler=sampler,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.shapes = []  # of each forward pass: rows and tokens
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


# A mean over rows, over micro-batches and over tokens; every loss: tests/nightly.
@pytest.mark.parametrize(("loss", "rows"), [("grpo", 2), ("bnpo", 2), ("dapo", 8)])
def test_weights_are_those_of_all_rows(folder, loss, rows):
    compare(folder, loss_type=loss, rows=rows, algorithm=three_of_each)


@pytest.mark.parametrize("checkpointing", [True, False])
def test_fewer_micro_batches_are_computed(folder, checkpointing):
    """Of 8 rows in micro-batches of 2, two of each prompt have an advantage: one micro-batch of
    each prompt, and with gradient checkpointing without a shared prompt."""
    settings = {"algorithm": partial(rows_of_each, count=2), "rows": 2}
    plain, lean = compare(folder, **settings, gradient_checkpointing=checkpointing)
    assert [rows for rows, _ in plain.shapes] == [2] * 4 * STEPS
    assert [rows for rows, _ in lean.shapes] == [1 + checkpointing] * 2 * STEPS
    tokens, of_all = (sum(rows * length for rows, length in t.shapes) for t in (lean, plain))
    assert tokens < (0.5 if checkpointing else 0.35) * of_all


def test_an_update_without_rows_decays_weights_as_before(folder):
    """Adam skips a parameter whose gradient is None."""
    changes = {"optim": "adamw_torch", "weight_decay": 0.1, "reward": nobody}
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
    trainer.shares_prompts = False
    trainer.train()
    assert sum(rows for rows, _ in trainer.shapes[-2:]) == 8


# ---- each prompt once --------------------------------------------------------------------------


def padded_rows(prompts, width):
    """TRL's ids and mask of rows: prompts and numbers of tokens of their completions."""
    random, before = torch.Generator().manual_seed(0), max(map(len, prompts))
    ids = torch.zeros(len(prompts), before + width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        length = row % width + 1
        ids[row, before - len(prompt) : before] = torch.tensor(prompt)
        ids[row, before : before + length] = torch.randint(5, 40, (length,), generator=random)
        mask[row, before - len(prompt) : before + length] = 1
    return ids, mask


MODELS = {  # that compute in float64 but for their norms
    "llama": transformers.LlamaConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
    "gpt2": transformers.GPT2Config,  # positions are learned
}
SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
}
SMALL_GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 4}
SMALL_GPT2 |= {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}


def model_of(kind):
    settings = SMALL_GPT2 if kind is transformers.GPT2Config else SMALL
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(kind(**settings)).double().train()


PROMPTS = {
    "two prompts": [[5, 6, 7, 8]] * 4 + [[9, 6]] * 3,
    "mixed up": [[5, 6, 7], [9], [5, 6, 7], [8, 5, 6, 7], [9]],
    "of two tokens": [[5, 6]] * 3,
    "of one token": [[5]] * 3,
}


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
@pytest.mark.parametrize("kind", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_shared_prompts_have_the_log_probabilities_of_each_row(folder, kind, prompts, batch_size):
    trainer = trainer_of(folder, model=model_of(kind))
    model = trainer.model
    ids, mask = padded_rows(prompts, 6)
    counted, results = mask[:, -6:], []
    for shares in (False, True):
        trainer.shares_prompts = shares
        values = trainer._get_per_token_logps_and_entropies(
            model, ids, mask, 6, batch_size, compute_entropy=True
        )
        model.zero_grad()
        ((values[0] + 1) * counted).square().sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        results.append([values[0] * counted, values[1] * counted, gradient])
    for shared, expected in zip(*results[::-1], strict=True):
        assert expected.abs().max() > 0.1
        exact = shared.ndim == 2 and shared.dtype == torch.float64  # TRL 1.14 on: in float32
        tolerance = 1e-12 if exact else 1e-6 * expected.abs().max().item()
        assert (shared - expected).abs().max() < tolerance


def test_a_model_keeps_its_attention(folder):
    trainer = trainer_of(folder, lean_update=True, max_steps=1)
    trainer.train()
    assert {rows for rows, _ in trainer.shapes} == {1}
    assert trainer.model.config._attn_implementation == "sdpa"


OWN_ATTENTION = {
    "sliding": transformers.MistralConfig(**SMALL, sliding_window=8),
    "some layers sliding": transformers.Gemma3TextConfig(**SMALL),
    "eager": transformers.LlamaConfig(**SMALL, attn_implementation="eager"),
    "state": transformers.MambaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1),
}


@pytest.mark.parametrize("config", OWN_ATTENTION.values(), ids=OWN_ATTENTION)
def test_prompts_are_not_shared_by_a_model_that_cannot(folder, config):
    trainer = trainer_of(folder, lean_update=True)
    assert trainer.shares_prompts
    del trainer.shares_prompts
    trainer.model = transformers.AutoModelForCausalLM.from_config(config)
    assert not trainer.shares_prompts


def test_prompts_are_not_shared_while_a_model_recomputes(folder):
    """The user's model does so, whatever args say: it would recompute with its own attention."""
    trainer = trainer_of(folder, lean_update=True)
    trainer.model.gradient_checkpointing_enable()
    assert not trainer.shares_prompts


def test_completions_of_which_no_token_counts_have_log_probabilities(folder):
    """An evaluation's that were all cut off, with mask_truncated_completions."""
    trainer = trainer_of(folder, model=model_of(transformers.Qwen2Config))
    ids, mask = padded_rows([[5, 6, 7]] * 2, 6)
    mask[:, -6:] = 0
    trainer.shares_prompts = True
    logprobs, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, 6)
    assert logprobs.shape == (2, 6)
    assert logprobs.isfinite().all()
