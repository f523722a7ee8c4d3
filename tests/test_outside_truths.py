"""Expected values from outside the code: the published settings, and updates computed by hand."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from peft import get_peft_model
from transformers import TrainerCallback

from pods.models.policy import Policy
from pods.training.build import trl_arguments
from tests.configs import compose
from tests.test_trainer import adapter, build, policy_of, rows

# key -> value, source: the paper's appendix and the published configuration (single-GPU runs)
PUBLISHED = {
    "learning_rate": 5e-6, "lr_scheduler_type": "constant", "warmup_steps": 0,
    "adam_beta1": 0.9, "adam_beta2": 0.99, "weight_decay": 0.1,
    "max_grad_norm": 0.1,  # the published code; the paper's first version says 1.0
    "temperature": 0.9, "top_p": 1.0, "top_k": 0, "max_completion_length": 512,
    "num_generations": 16,  # m
    "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1,
    "steps_per_generation": 1, "num_iterations": 1,  # one update per batch
    "importance_sampling_level": "token", "top_entropy_quantile": 1.0,
    "loss_type": "grpo",  # mean over a sequence, then over the batch
    "beta": 0.0,  # no KL term for Qwen
    "epsilon": 0.2, "epsilon_high": 0.2, "mask_truncated_completions": False,
    "use_bias_correction_kl": False,  # the k3 estimator as it is
    "vllm_importance_sampling_correction": False,
    "seed": 7, "data_seed": 7, "fp16": False, "bf16": True,
}  # fmt: skip


@pytest.mark.parametrize(("overrides", "changes"), [
    ([], {}),
    (["algorithm=grpo"], {}),
    (["algorithm=grpo_ga"], {"num_generations": 64, "gradient_accumulation_steps": 4,
                             "steps_per_generation": 4}),
    (["experiment=gsm8k_llama"], {"beta": 0.04}),
    (["experiment=math_qwen"], {"num_generations": 8, "per_device_train_batch_size": 8}),
    (["prompts_per_step=2"], {"gradient_accumulation_steps": 2, "steps_per_generation": 2}),
])  # fmt: skip
def test_trls_arguments_are_the_published_ones(overrides, changes):
    config = compose("experiment=gsm8k_qwen", "seed=7", *overrides)
    policy = Policy(None, None, None, "cpu", [1])
    actual = trl_arguments(config, policy)
    expected = PUBLISHED | changes
    assert {key: actual[key] for key in expected} == expected


SETTINGS = [
    "prompts_per_step=2", "rollouts_per_prompt=12", "kept_per_prompt=6", "micro_batch_size=3",
    "sampling.temperature=2", "sampling.max_completion_length=12", "optimizer.betas=[0.8,0.95]",
    "optimizer.learning_rate=2e-3", "optimizer.weight_decay=0.3", "optimizer.max_grad_norm=0.05",
    "loss.beta=0.2", "max_steps=2", "optimizer.schedule=constant",
]  # fmt: skip
TEMPERATURE, BETA, RATE, DECAY, CLIP, MOMENTS = 2, 0.2, 2e-3, 0.3, 0.05, (0.8, 0.95)
WHOLE = ["micro_batch_size=6", "prompts_per_step=1"]  # one micro-batch: quantiles are taken over it
TWICE = [*WHOLE, "updates_per_generation=2", "max_steps=4"]
CLIPPED = ["loss.mask_truncated_completions=true", "sampling.max_completion_length=21"]
CASES = {  # name: overrides, and what of the loss a completion has to meet
    "grpo": (["loss.type=grpo"], set()),
    "dapo": (["loss.type=dapo"], set()),
    "epsilon_high": ([*TWICE, "loss.type=dapo", "loss.epsilon=0.01", "loss.epsilon_high=0.03"],
                     {"low", "high"}),
    "GSPO": ([*TWICE, "loss.type=grpo", "loss.importance_sampling_level=sequence",
              "loss.epsilon=0.002"], {"low", "high"}),
    "top entropy": ([*WHOLE, "loss.type=grpo", "loss.top_entropy_quantile=0.3456"], {"quantile"}),
    "mask, per sequence": ([*WHOLE, "loss.type=grpo", *CLIPPED], {"clipped", "not clipped"}),
    "mask, per token": ([*TWICE, "loss.type=dapo", *CLIPPED], {"clipped", "not clipped"}),
    "trl": ([*TWICE, "loss.type=grpo", "trl={delta: 1.01, entropy_coef: 0.5}"], {"delta"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_updates_computed_by_hand(case):
    """Temperature, k3, reductions, clipping, masks, reward weights and AdamW in plain torch."""
    overrides, seen = [*SETTINGS, *CASES[case][0]], CASES[case][1]
    trainer = build(overrides, dataset=rows())
    weights, norms, steps = [adapter(trainer)], [], []
    inner = trainer.hand_over

    def spy(record):
        batch, record = inner(record)
        steps.append(record)
        return batch, record

    trainer.hand_over = spy

    class Watch(TrainerCallback):
        def on_step_end(self, *_, **__):
            weights.append(adapter(trainer))

        def on_log(self, *_, logs, **__):
            norms.extend([logs["grad_norm"]] if "grad_norm" in logs else [])

    trainer.add_callback(Watch())
    trainer.train()
    assert len(steps) == 2
    config = compose(*overrides)
    double, single = (ByHand(config, weights, kind) for kind in (torch.float64, torch.float32))
    for by_hand in (double, single):
        for step in steps:
            by_hand.generation(step)
        assert by_hand.seen >= seen  # else the case does not test its knob
    assert len(double.gradients) == len(single.gradients) == len(weights) - 1
    # AdamW and clipping hide a factor that all gradients share; their norm does not.
    assert norms == pytest.approx(double.norms, rel=1e-4)
    assert_adamw(weights, double.gradients, single.gradients)
    assert all(w.abs().max() > RATE / 2 for name, w in weights[-1].items() if "lora_B" in name)


def assert_adamw(weights, double, single):
    """Each update is AdamW's, wherever the gradient is above the rounding noise of float32.

    AdamW divides by the gradient's size: an entry whose gradient is rounding noise moves by a
    learning rate in a direction that the CPU's order of summation decides. The noise is therefore
    measured here, as the largest share of a tensor's gradient by which float32 and float64 differ.
    16: the trainer's float32 passes (padded batches) err as ours do, at worst two or three times as
    much, and both moments inherit the error."""
    first, second, noise = Counter(), Counter(), Counter()
    for number, (before, after) in enumerate(pairwise(weights), 1):
        gradients, rounded = double[number - 1], single[number - 1]
        share = max(
            (rounded[k] - g).abs().max() / g.abs().max() for k, g in gradients.items() if g.any()
        )
        for name, g in gradients.items():
            first[name] = MOMENTS[0] * first[name] + (1 - MOMENTS[0]) * g
            second[name] = MOMENTS[1] * second[name] + (1 - MOMENTS[1]) * g**2
            noise[name] = max(noise[name], share * g.abs().max())
            mean = first[name] / (1 - MOMENTS[0] ** number)
            root = (second[name] / (1 - MOMENTS[1] ** number)).sqrt() + 1e-8
            old, new = before[name].double(), after[name].double()
            error = (old - RATE * (DECAY * old + mean / root) - new).abs()
            bound = RATE * 16 * noise[name] / root  # what the noise can move an entry by
            above = bound < RATE / 10
            assert above.float().mean() > 0.25, name
            rounding = 2**-22 * (old.abs() + RATE)  # two to four roundings of the update itself
            assert (error <= bound + rounding)[above].all(), name


class ByHand:
    """The clipped gradients of the recorded rollouts. Each update starts from the trainer's adapter
    (`weights`: before the first update and after every one), so that no noise is carried over."""

    def __init__(self, config, weights, dtype):
        self.config, self.recorded, self.seen = config, weights, set()
        policy = policy_of(config)
        self.model = get_peft_model(policy.model, policy.peft_config).to(dtype)
        self.model.load_state_dict(weights[0], strict=False)
        self.weights = {k: p for k, p in self.model.named_parameters() if "lora_" in k}
        self.gradients = []  # of each update, clipped, in float64
        self.norms = []  # before clipping

    def generation(self, step):
        """All updates on the rollouts of one generation."""
        kept = step.selection.kept.tolist()
        chosen = [step.rollouts[place].completion for place in kept]
        texts = [(step.rollouts[i].prompt_ids, step.rollouts[i].completion.token_ids) for i in kept]
        advantages = [advantage_of(step, place) for place in kept]
        masked = [self.config.loss.mask_truncated_completions and c.clipped for c in chosen]
        if self.config.loss.mask_truncated_completions:
            self.seen |= {"clipped" if c.clipped else "not clipped" for c in chosen}
        with torch.no_grad():
            old = [token_logprobs(self.model, *text)[0] for text in texts]
            with self.model.disable_adapter():
                reference = [token_logprobs(self.model, *text)[0] for text in texts]
        for _ in range(self.config.updates_per_generation):
            ours = [token_logprobs(self.model, *text) for text in texts]
            self.update(self.loss(ours, old, reference, advantages, masked))

    def loss(self, ours, old, reference, advantages, masked):
        config, terms = self.config.loss, []
        unmasked = [e for (_, e), hidden in zip(ours, masked, strict=True) if not hidden]
        entropies = torch.cat(unmasked)
        threshold = torch.quantile(entropies.detach(), 1 - config.top_entropy_quantile)
        completions = zip(ours, old, reference, advantages, masked, strict=True)
        for (logprobs, entropy), before, base, advantage, hidden in completions:
            change = logprobs - before
            if config.importance_sampling_level == "sequence":
                change = change.mean().expand_as(change)
            policy = self.clipped(torch.exp(change), torch.tensor(advantage))
            if config.top_entropy_quantile < 1:
                self.seen.add("quantile")
                distance = (entropies.detach() - threshold).abs().min()
                assert distance > 1e-5  # 20 roundings of log(vocabulary): they decide no token
                policy = policy * (entropy.detach() >= threshold)
            kl = torch.exp(base - logprobs) - (base - logprobs) - 1
            terms.append((policy + BETA * kl) * (not hidden))
        if config.type == "grpo":  # mean over a sequence, then over the batch
            loss = torch.stack([term.mean() for term in terms]).mean()
        else:  # over the tokens that are not masked
            loss = torch.cat(terms).sum() / len(entropies)
        return loss - (self.config.trl.entropy_coef or 0.0) * entropies.mean()

    def clipped(self, ratio, advantage):
        """-min(ratio A, clip(ratio) A), with delta as the upper bound of the first ratio."""
        loss, delta = self.config.loss, self.config.trl.delta
        low, high = 1 - loss.epsilon, 1 + (loss.epsilon_high or loss.epsilon)
        self.seen |= {"low"} if advantage < 0 and (ratio < low).any() else set()
        self.seen |= {"high"} if advantage > 0 and (ratio > high).any() else set()
        bounded = ratio.clamp(low, high)
        if delta is not None:
            self.seen |= {"delta"} if advantage < 0 and (ratio > delta).any() else set()
            ratio = ratio.clamp(max=delta)
        return -torch.min(ratio * advantage, bounded * advantage)

    def update(self, loss):
        """Record the gradient, clipped, and go on from the trainer's next weights."""
        gradients = [g.double() for g in torch.autograd.grad(loss, list(self.weights.values()))]
        norm = sum((g**2).sum().item() for g in gradients) ** 0.5
        assert norm > CLIP or self.gradients  # else clipping is not tested
        scale = min(1.0, CLIP / (norm + 1e-6))
        clipped = {name: g * scale for name, g in zip(self.weights, gradients, strict=True)}
        self.gradients.append(clipped)
        self.norms.append(norm)
        self.model.load_state_dict(self.recorded[len(self.gradients)], strict=False)


def advantage_of(step, place):
    """(r - mean) / (std + 1e-4) over the kept of the prompt, from the rewards by function."""
    weights = {"correctness": 1.0, "format": 0.7, "tags": 1.3}
    total = sum(w * torch.tensor(step.batch.by_function[k]) for k, w in weights.items())
    prompt = step.batch.prompt
    kept = total[[i for i in step.selection.kept.tolist() if prompt[i] == prompt[place]]]
    return ((total[place] - kept.mean()) / (kept.std() + 1e-4)).item()


def token_logprobs(model, prompt, completion):
    """(tokens,) log-probabilities and entropies under the sampling temperature."""
    tokens = torch.tensor([[*prompt, *completion]])
    logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
    every = logits.log_softmax(-1)
    return every.gather(1, torch.tensor(completion)[:, None])[:, 0], -(every.exp() * every).sum(-1)
