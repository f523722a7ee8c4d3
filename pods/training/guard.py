"""Proof that an engine samples from the policy that is trained, by log-probabilities of both: one
that holds the base weights, or an old adapter, gives rollouts without any error."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from accelerate.utils import is_peft_model
from transformers import PreTrainedModel

from pods.config.errors import RunFailed
from pods.engines import Completion, Engine, LivePolicy, Request, Work
from pods.metrics import Metrics
from pods.models import FALLBACK

FIRST_STEPS = 3  # of the run, and rounds of this process: checked, then every check_every-th
CHECKED_COMPLETIONS = 4  # per comparison: one small forward pass
PROBE_SCALE = 0.05  # standard deviation of lora_B in the probe: far above the rounding of kernels


@dataclass
class Guard:
    """Compares the rollouts of a training's engine with the trainer."""

    engine: Engine
    token_logprobs: Callable[..., list[torch.Tensor]]  # of the trainer: (prompts, completions)
    max_gap: float  # nats, largest accepted mean |engine - trainer| log-probability of a token
    check_every: int  # steps between two comparisons
    updates: int = 1  # optimiser steps on one generation
    metrics: Metrics = field(default_factory=dict)  # of the newest round
    proof: Metrics = field(default_factory=dict)  # of the one probe, maybe in the warm-up
    calls: int = 0

    def due(self, step: int) -> bool:
        """Whether the rollouts of `step` are compared, and so need log-probabilities."""
        return self.calls < FIRST_STEPS or self.regular(step)

    def regular(self, step: int) -> bool:
        """True if the step is on the fixed schedule. Only these gaps are logged, so that a resume
        changes no metric."""
        return step < FIRST_STEPS or step % self.check_every < self.updates

    def check(self, work: Work, groups: list[list[Completion]], step: int) -> None:
        """Compare the first completions of a round, if due, and probe once. Raises RunFailed if
        the rollouts are not the policy's."""
        self.metrics = {}
        regular = self.regular(step)
        if self.due(step):
            gap = self.gap(work.requests, groups)
            if not gap <= self.max_gap:  # also if it is NaN
                raise RunFailed(
                    f"guard.max_logprob_gap={self.max_gap}: log-probabilities of engine and "
                    f"trainer differ by {gap:.3f} nats: the rollouts do not come from the trained "
                    f"policy; {FALLBACK}"
                )
            if regular:
                self.metrics["engine/logprob_gap"] = gap
        # Without an adapter all weights are handed over.
        if self.calls == 0 and is_peft_model(work.weights.model):
            self.proof = self.probe(work.requests, work.weights)
        self.calls += 1
        if step == 0:
            self.metrics |= self.proof

    def probe(self, requests: Sequence[Request], policy: LivePolicy) -> Metrics:
        """Generate with a random adapter: a fresh one is zero, so the first gap proves nothing."""
        asked = [Request(r.prompt, r.seeds[:1]) for r in requests[:CHECKED_COMPLETIONS]]
        with torch.random.fork_rng(), random_adapter(policy.model):
            work = Work(asked, LivePolicy(policy.model, "probe"), evaluation=True)
            ((_, groups),) = self.engine.generate([work], logprobs=True)
            changed = self.gap(asked, groups)
        unchanged = self.gap(asked, groups)
        if not changed < unchanged / 2:
            raise RunFailed(
                "the engine ignores the adapter: after a change of it, log-probabilities are "
                f"{changed:.3f} nats from the trainer's, {unchanged:.3f} nats without the change"
            )
        return {"engine/probe_gap": changed, "engine/probe_gap_without_adapter": unchanged}

    def gap(self, requests: Sequence[Request], groups: list[list[Completion]]) -> float:
        """Mean |engine - trainer| log-probability of the first completions' tokens, in nats."""
        pairs = [
            (request.prompt, completion)
            for request, group in zip(requests, groups, strict=True)
            for completion in group
        ]
        prompts, completions = zip(*pairs[:CHECKED_COMPLETIONS], strict=True)
        if any(completion.logprobs is None for completion in completions):
            raise RunFailed(
                "the engine returned no log-probabilities, so nothing proves that it samples "
                "from the policy; give them to each Completion if generate has logprobs=True"
            )
        # In one batch: the trainer computes a prompt once for all of its completions.
        ours = self.token_logprobs(
            [list(prompt) for prompt in prompts],
            [completion.token_ids for completion in completions],
        )
        differences = []
        for values, completion in zip(ours, completions, strict=True):
            engines = np.array(completion.logprobs, dtype=np.float32)  # None becomes NaN
            differences.append((values - torch.from_numpy(engines)).abs())
        return torch.cat(differences).mean().item()


@contextmanager
def random_adapter(model: PreTrainedModel) -> Iterator[None]:
    """Every lora_B sampled at random (seeded, apart from the global generators), then restored."""
    generator = torch.Generator().manual_seed(0)
    saved = {p: p.detach().clone() for name, p in model.named_parameters() if "lora_B" in name}
    with torch.no_grad():
        try:
            for weight in saved:
                weight.copy_(torch.randn(weight.shape, generator=generator) * PROBE_SCALE)
            yield
        finally:
            for weight, value in saved.items():
                weight.copy_(value)
