"""Expected values from outside the code: the published settings, and updates computed by hand."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import get_peft_model

from pods.policy import Policy
from pods.rollouts import Step
from pods.trainer import trl_arguments
from tests.configs import compose
from tests.test_trainer import adapter, build, policy_of, rows

# key -> value, source: the paper's appendix and the published configuration (single-GPU runs)
PUBLISHED = {
    "learning_rate": 5e-6,
    "lr_scheduler_type": "constant",
    "adam_beta1": 0.9,
    "adam_beta2": 0.99,
    "weight_decay": 0.1,
    "max_grad_norm": 0.1,  # the published code; the paper's first version says 1.0
    "temperature": 0.9,
    "top_p": 1.0,
    "top_k": 0,
    "max_completion_length": 512,
    "num_generations": 16,  # m
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 1,
    "num_iterations": 1,  # one update per batch
    "loss_type": "grpo",  # mean over a sequence, then over the batch
    "beta": 0.0,  # no KL term for Qwen
    "epsilon": 0.2,
    "epsilon_high": 0.2,
    "use_bias_correction_kl": False,  # the k3 estimator as it is
    "mask_truncated_completions": False,
    "vllm_importance_sampling_correction": False,
    "warmup_steps": 0,
    "seed": 7,
    "data_seed": 7,
    "fp16": False,
    "bf16": True,
}


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [
        ([], {}),
        (["algorithm=grpo"], {}),
        (["algorithm=grpo_ga"], {"num_generations": 64, "gradient_accumulation_steps": 4,
                                 "steps_per_generation": 4}),
        (["experiment=gsm8k_llama"], {"beta": 0.04}),
        (["experiment=math_qwen"], {"num_generations": 8, "per_device_train_batch_size": 8}),
        (["prompts_per_step=2"], {"gradient_accumulation_steps": 2, "steps_per_generation": 2}),
    ],
)  # fmt: skip
def test_trls_arguments_are_the_published_ones(overrides, changes):
    config = compose("experiment=gsm8k_qwen", "seed=7", *overrides)
    policy = Policy(None, None, None, "transformers", "cpu", config.model.dtype, [1])
    actual = trl_arguments(config, policy)
    expected = PUBLISHED | changes
    assert {key: actual[key] for key in expected} == expected


SETTINGS = [
    "rollouts_per_prompt=12", "kept_per_prompt=6", "micro_batch_size=3", "max_steps=2",
    "sampling.temperature=0.7", "sampling.max_completion_length=12", "optimizer.betas=[0.8,0.95]",
    "optimizer.learning_rate=2e-3", "optimizer.weight_decay=0.3", "optimizer.max_grad_norm=0.05",
    "loss.beta=0.2",
]  # fmt: skip
TEMPERATURE, BETA, RATE, DECAY, CLIP, MOMENTS = 0.7, 0.2, 2e-3, 0.3, 0.05, (0.8, 0.95)


def per_sequence(losses: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([loss.mean() for loss in losses]).mean()


def per_token(losses: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(losses).mean()


@pytest.mark.parametrize(("loss_type", "reduce"), [("grpo", per_sequence), ("dapo", per_token)])
def test_two_updates_computed_by_hand(loss_type, reduce):
    """Temperature, k3, both reductions, reward weights, clipping and AdamW in plain torch."""
    trainer, rollouts = build([*SETTINGS, f"loss.type={loss_type}"], dataset=rows())
    start, steps = adapter(trainer), []
    inner = type(rollouts).__call__

    class Spy(type(rollouts)):
        def __call__(self, *arguments: Any) -> dict:
            handed = inner(self, *arguments)
            steps.append((self.newest, copy.deepcopy(handed["prompt_ids"])))
            return handed

    rollouts.__class__ = Spy
    trainer.train()
    by_hand = updated(start, steps, reduce)
    for name, value in adapter(trainer).items():
        difference = (value - by_hand[name]).abs()
        # AdamW divides by the gradient's size, so where that is rounding noise, the update is too.
        assert (difference > 1e-6).float().mean() < 0.005, name
        assert difference.median() < 1e-7, name
        if "lora_B" in name:
            assert value.abs().max() > RATE / 2


def updated(
    start: dict[str, torch.Tensor],
    steps: list[tuple[Step, list[list[int]]]],
    reduce: Callable[[list[torch.Tensor]], torch.Tensor],
) -> dict[str, torch.Tensor]:
    """The adapter after AdamW updates on the recorded rollouts."""
    policy = policy_of(compose(*SETTINGS))
    model = get_peft_model(policy.model, policy.peft_config)
    model.load_state_dict(start, strict=False)
    weights = {k: p for k, p in model.named_parameters() if "lora_" in k}
    first = {k: torch.zeros_like(p) for k, p in weights.items()}
    second = {k: torch.zeros_like(p) for k, p in weights.items()}
    for number, (step, prompts) in enumerate(steps, start=1):
        gradients = dict(zip(weights, gradient(model, weights, step, prompts, reduce), strict=True))
        norm = torch.sqrt(sum((g**2).sum() for g in gradients.values()))
        assert norm > CLIP  # else clipping is not tested
        for name, weight in weights.items():
            g = gradients[name] * CLIP / (norm + 1e-6)
            first[name] = MOMENTS[0] * first[name] + (1 - MOMENTS[0]) * g
            second[name] = MOMENTS[1] * second[name] + (1 - MOMENTS[1]) * g**2
            mean = first[name] / (1 - MOMENTS[0] ** number)
            root = (second[name] / (1 - MOMENTS[1] ** number)).sqrt()
            weight.data -= RATE * DECAY * weight.data + RATE * mean / (root + 1e-8)
    return {name: weight.detach() for name, weight in weights.items()}


def gradient(
    model: Any,
    weights: dict[str, torch.Tensor],
    step: Step,
    prompts: list[list[int]],
    reduce: Callable[[list[torch.Tensor]], torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    losses = []
    n = step.batch.shape[1]
    for place, prompt in zip(step.selection.kept.tolist(), prompts, strict=True):
        completion = step.completions[place // n][place % n].token_ids
        ours = logprobs(model, prompt, completion)
        with torch.no_grad(), model.disable_adapter():
            reference = logprobs(model, prompt, completion)
        advantage = advantage_of(step, place)
        ratio = torch.exp(ours - ours.detach())  # on-policy: 1, with the gradient of ours
        kl = torch.exp(reference - ours) - (reference - ours) - 1
        losses.append(-ratio * advantage + BETA * kl)
    return torch.autograd.grad(reduce(losses), list(weights.values()))


def advantage_of(step: Step, place: int) -> float:
    """(r - mean) / (std + 1e-4) over the kept of the prompt, from the rewards by function."""
    n = step.batch.shape[1]
    weights = {"correctness": 1.0, "format": 0.7, "tags": 1.3}
    total = sum(w * torch.tensor(step.batch.by_function[k]).reshape(-1) for k, w in weights.items())
    mine = [i for i in step.selection.kept.tolist() if i // n == place // n]
    kept = total[mine]
    return ((total[place] - kept.mean()) / (kept.std() + 1e-4)).item()


def logprobs(model: Any, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """(tokens,) log-probabilities of the completion under the sampling temperature."""
    tokens = torch.tensor([[*prompt, *completion]])
    logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
