"""The trainer's updates, computed by hand in plain torch."""

import pytest
import torch
from peft import get_peft_model
from transformers import TrainerCallback

from tests.configs import compose
from tests.fake_run import logps_of
from tests.test_trainer import adapter, build, policy_of, rows

SETTINGS = [
    "prompts_per_step=2",
    "rollouts_per_prompt=12",
    "kept_per_prompt=6",
    "micro_batch_size=3",
    "sampling.temperature=2",
    "sampling.max_completion_length=12",
    "loss.beta=0.2",
    "max_steps=2",
    "optimizer.name=sgd",
    "optimizer.learning_rate=1",
    "optimizer.schedule=constant",
    "optimizer.weight_decay=0.3",
    "optimizer.max_grad_norm=0.05",
]
TEMPERATURE, BETA, RATE, DECAY, CLIP = 2, 0.2, 1, 0.3, 0.05
CASES = {  # the last: two updates on each generation, of which both ends of the ratio are reached
    "grpo": ["loss.type=grpo"],
    "dapo": ["loss.type=dapo"],
    "clipped": [
        "loss.type=dapo",
        "updates_per_generation=2",
        "max_steps=4",
        "loss.epsilon=0.01",
        "loss.epsilon_high=0.03",
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_updates_computed_by_hand(case):
    """Temperature, k3, reductions, ratios, reward weights, clipping, decay. Plain gradient steps:
    AdamW would move an entry whose gradient is rounding noise by a whole learning rate."""
    overrides = [*SETTINGS, *CASES[case]]
    trainer = build(overrides, dataset=rows())
    weights, norms, steps = [adapter(trainer)], [], []
    inner = trainer.build_trl_batch

    def spy(record):
        batch, record = inner(record)
        steps.append(record)
        return batch, record

    trainer.build_trl_batch = spy

    class Watch(TrainerCallback):
        def on_step_end(self, *_, **__):
            weights.append(adapter(trainer))

        def on_log(self, *_, logs, **__):
            norms.extend([logs["grad_norm"]] if "grad_norm" in logs else [])

    trainer.add_callback(Watch())
    trainer.train()
    assert len(steps) == 2
    by_hand = ByHand(compose(*overrides), weights)
    for step in steps:
        by_hand.generation(step)
    assert by_hand.reached == ({"low", "high"} if case == "clipped" else set())
    assert norms == pytest.approx(by_hand.norms, rel=1e-4)  # before clipping
    assert max(norms) > CLIP  # else clipping is not tested
    assert len(by_hand.gradients) == len(weights) - 1
    for before, gradients, after in zip(weights, by_hand.gradients, weights[1:], strict=False):
        for name, gradient in gradients.items():
            expected = before[name].double() - RATE * (gradient + DECAY * before[name].double())
            noise = 1e-3 * gradient.abs().max().item() + 2**-21 * before[name].abs().max().item()
            torch.testing.assert_close(after[name].double(), expected, rtol=0, atol=noise)


class ByHand:
    """The clipped gradients of the recorded rollouts in float64. Each update starts from the
    trainer's adapter (`weights`: before the first update and after every one), so that no noise is
    carried over."""

    def __init__(self, config, weights):
        self.config, self.recorded, self.reached = config, weights, set()
        policy = policy_of(config)
        self.model = get_peft_model(policy.model, policy.peft_config).double()
        self.model.load_state_dict(weights[0], strict=False)
        self.weights = {k: p for k, p in self.model.named_parameters() if "lora_" in k}
        self.gradients, self.norms = [], []  # of each update: clipped, and before clipping

    def generation(self, step):
        """All updates on the rollouts of one generation."""
        kept = step.selection.kept.tolist()
        texts = [(step.rollouts[i].prompt_ids, step.rollouts[i].completion.token_ids) for i in kept]
        with torch.no_grad():
            old = self.logprobs(texts)
            with self.model.disable_adapter():
                reference = self.logprobs(texts)
        advantages = [advantage_of(step, place) for place in kept]
        for _ in range(self.config.updates_per_generation):
            columns = self.logprobs(texts), old, reference, advantages
            terms = [self.loss(*row) for row in zip(*columns, strict=True)]
            if self.config.loss.type == "grpo":  # mean over a sequence, then over the batch
                self.update(torch.stack([term.mean() for term in terms]).mean())
            else:  # over the tokens
                self.update(torch.cat(terms).mean())

    def logprobs(self, texts):
        return [logps_of(self.model, *text, TEMPERATURE) for text in texts]

    def loss(self, ours, old, reference, advantage):
        """(tokens,) -min(ratio A, clip(ratio) A) + beta k3."""
        loss, ratio = self.config.loss, torch.exp(ours - old)
        low, high = 1 - loss.epsilon, 1 + (loss.epsilon_high or loss.epsilon)
        self.reached |= {"low"} if advantage < 0 and (ratio < low).any() else set()
        self.reached |= {"high"} if advantage > 0 and (ratio > high).any() else set()
        policy = -torch.min(ratio * advantage, ratio.clamp(low, high) * advantage)
        return policy + BETA * (torch.exp(reference - ours) - (reference - ours) - 1)

    def update(self, loss):
        """Record the gradient, clipped, and go on from the trainer's next weights."""
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        self.norms.append(sum((g**2).sum().item() for g in gradients) ** 0.5)
        scale = min(1.0, CLIP / (self.norms[-1] + 1e-6))
        clipped = {name: g * scale for name, g in zip(self.weights, gradients, strict=True)}
        self.gradients.append(clipped)
        self.model.load_state_dict(self.recorded[len(self.gradients)], strict=False)


def advantage_of(step, place):
    """(r - mean) / (std + 1e-4) over the kept of the prompt, from the rewards by function."""
    weights = {"correctness": 1.0, "format": 0.7, "tags": 1.3}
    total = sum(w * torch.tensor(step.batch.by_function[k]) for k, w in weights.items())
    prompt = step.batch.prompt
    kept = total[[i for i in step.selection.kept.tolist() if prompt[i] == prompt[place]]]
    return ((total[place] - kept.mean()) / (kept.std() + 1e-4)).item()
