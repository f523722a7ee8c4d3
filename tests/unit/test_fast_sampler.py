"""pods.FastSampler in a TRL script, beside TRL's own generation."""

from functools import partial

import pytest
import torch

from pods import FastSampler, PodsConfig, PodsTrainer
from pods.algorithms import pods
from pods.batch import prompt_of
from pods.trl_adapter import TrlSampler
from tests.nightly.test_drop_in import CHAT, PLAIN, SETTINGS, letters, weights
from tests.unit.test_pods_trainer import same, trainer_of

fast = partial(trainer_of, PodsTrainer, own={"sampler": FastSampler}, rollouts_per_prompt=8)
FORMS = {
    "the whole model": {},
    "LoRA, chat": {"lora": True, "data": CHAT},
    "mixed precision": {"bf16": True, "model_init_kwargs": {"dtype": "float32"}},
}


def wanted(trainer, count=2):
    """`count` rollouts of each of the six prompts, with their indices."""
    prompts = [prompt_of(row, number) for number, row in enumerate(trainer.train_dataset)]
    return [(prompt, index) for prompt in prompts for index in range(count)]


def sampled(sampler):
    return [
        (rollout.prompt_ids, rollout.completion, rollout.text)
        for rollout in sampler.sample(wanted(sampler.trainer))
    ]


def reads_logprobs(step):
    return (yield from pods(step))


reads_logprobs.reads_logprobs = True


@pytest.mark.parametrize("form", FORMS)
def test_the_likeliest_completions_are_those_of_trls_generation(tmp_path, form):
    """With the weights as they are now: the adapter starts as 0, so it is changed in between."""
    trainer = fast(tmp_path, top_k=1, max_completion_length=24, **FORMS[form])
    trainer.model.train()
    first = sampled(trainer.sampler)
    with torch.no_grad():
        for name, parameter in trainer.model.named_parameters():
            if parameter.requires_grad and "q_proj" in name:
                parameter.add_(torch.randn(parameter.shape) / 4)
    changed = sampled(trainer.sampler)
    assert changed == sampled(TrlSampler(trainer))
    assert changed != first
    assert trainer.model.training
    assert trainer.model.config._attn_implementation == "sdpa"


def test_a_completion_depends_on_its_seed_question_and_index(tmp_path):
    trainer = fast(tmp_path)
    rows = wanted(trainer, 4)
    together = trainer.sampler.sample(rows)
    assert len({str(rollout.completion.token_ids) for rollout in together[:4]}) > 1
    assert trainer.sampler.sample(rows[2:9]) == together[2:9]
    trainer.args.seed = 1
    assert trainer.sampler.sample(rows) != together


@pytest.mark.parametrize("lora", [False, True])
def test_it_trains_and_resumes_to_the_bit(tmp_path, lora):
    constant = partial(fast, lora=lora, lr_scheduler_type="constant")
    whole = constant(tmp_path / "whole")
    start = {name: value.clone() for name, value in weights(whole).items()}
    whole.train()
    assert not same(start, weights(whole))
    assert whole.state.log_history[0]["completions/max_length"] <= 8
    constant(tmp_path / "half", max_steps=2, save_strategy="steps", save_steps=2).train()
    again = constant(tmp_path / "half")
    again.train(resume_from_checkpoint=True)
    assert same(weights(whole), weights(again))


def test_log_probabilities_come_with_an_algorithm_that_reads_them(tmp_path):
    own = {"sampler": FastSampler, "algorithm": reads_logprobs}
    trainer = fast(tmp_path, own=own, max_steps=1)
    trainer.train()
    assert "sampling/importance_sampling_ratio/mean" in trainer.state.log_history[0]
    (rollout,) = trainer.sampler.sample(wanted(trainer)[:1])
    (expected,) = trainer.token_logprobs([rollout.prompt_ids], [rollout.completion.token_ids])
    torch.testing.assert_close(
        torch.tensor(rollout.completion.logprobs), expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min_p", 0.1),
        ("repetition_penalty", 1.2),
        ("generation_kwargs", {"num_beams": 2}),
        ("cache_implementation", "static"),
        ("use_vllm", True),
        ("temperature", 0.0),
    ],
)
def test_an_argument_that_it_does_not_follow_is_refused_before_a_model_loads(key, value):
    args = PodsConfig("out", **SETTINGS | {key: value})
    with pytest.raises(ValueError, match=f"^{key}={value}: .*FastSampler".replace("{", r"\{")):
        PodsTrainer("no such model", letters, args, PLAIN, sampler=FastSampler)
