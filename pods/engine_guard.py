"""Proof that the engine samples from the policy that is trained, and a count of stray pad tokens.

With Unsloth the engine holds the base weights and the adapter is handed over at every generation;
where that fails, rollouts come from the base model without any error. Attached by pods/trainer.py
to runs with a vLLM engine. Not in the published code.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import is_peft_model

from pods.cli import RunFailed

CHECKED_STEPS = 3  # steps whose engine and trainer log-probabilities are compared
CHECKED_COMPLETIONS = 4  # per comparison: one small forward pass
PROBE_SCALE = 0.05  # standard deviation of lora_B in the probe: far above any kernel's rounding


class EngineGuard:
    """Wraps `trainer._generate_single_turn`; `metrics` holds what it saw in the newest step.

    Args:
        max_gap: nats, largest accepted mean |engine - trainer| log-probability of a token.
    """

    def __init__(self, trainer: Any, max_gap: float) -> None:
        self.trainer, self.max_gap = trainer, max_gap
        self.metrics: dict[str, float] = {}
        self.proof: dict[str, float] = {}  # of the one probe, which may fall into the warm-up
        self.calls = 0
        self._generate = trainer._generate_single_turn
        trainer._generate_single_turn = self

    def __call__(self, prompt_ids: list[list[int]], *rest: Any) -> tuple[list[list[int]], Any]:
        training = self.trainer.model.training  # read before generating: Unsloth switches it on
        ids, logprobs = self._generate(prompt_ids, *rest)
        if not training:  # an evaluation inside the run: nothing is trained on
            return ids, logprobs
        self.metrics = {}
        if self.calls < CHECKED_STEPS:
            self._compare(prompt_ids, ids, logprobs)
        if self.calls == 0 and is_peft_model(self.trainer.model):  # else all weights are synced
            self._probe(prompt_ids[:CHECKED_COMPLETIONS], rest)
        self.calls += 1
        ids, logprobs, cut = without_pads(ids, logprobs, self.trainer.processing_class.pad_token_id)
        self.metrics |= {"engine/completions_with_pad": float(cut), **self.proof}
        return ids, logprobs

    def _compare(self, prompt_ids: list[list[int]], ids: list[list[int]], logprobs: Any) -> None:
        """The batch's first completions: what the engine said against what the trainer says."""
        gap = self.gap(prompt_ids, ids, logprobs)
        self.metrics["engine/logprob_gap"] = gap
        if not gap <= self.max_gap:  # also where it is NaN
            raise RunFailed(
                f"engine and trainer disagree: log-probabilities differ by {gap:.3f} nats on "
                f"average, more than backend.max_logprob_gap={self.max_gap}; the rollouts do not "
                "come from the policy that is trained"
            )

    def _probe(self, prompt_ids: list[list[int]], rest: tuple) -> None:
        """Generate once with an adapter that differs from zero: a fresh one changes nothing, so the
        comparison of the first step would also pass if the engine ignored it."""
        with torch.random.fork_rng(), random_adapter(self.trainer.model):
            ids, logprobs = self._generate(prompt_ids, *rest)
            seen = self.gap(prompt_ids, ids, logprobs)
        without = self.gap(prompt_ids, ids, logprobs)
        self.proof = {"engine/probe_gap": seen, "engine/probe_gap_without_adapter": without}
        if not seen < without / 2:
            raise RunFailed(
                f"the engine ignores the adapter: a changed one left its log-probabilities "
                f"{seen:.3f} nats from the trainer's, and {without:.3f} nats from those without "
                "the change"
            )

    def gap(self, prompt_ids: list[list[int]], ids: list[list[int]], logprobs: Any) -> float:
        """Mean |engine - trainer| log-probability of the first completions' tokens, nats."""
        if logprobs is None:
            raise RunFailed("the engine returned no log-probabilities; nothing proves its weights")
        trainer, rows = self.trainer, list(zip(prompt_ids, ids, logprobs, strict=True))
        differences = []
        training = trainer.model.training
        for prompt, completion, engine in rows[:CHECKED_COMPLETIONS]:
            theirs = torch.tensor([float("nan") if p is None else p for p in engine])
            differences.append((trainer_logprobs(trainer, prompt, completion) - theirs).abs())
        trainer.model.train(training)
        return torch.cat(differences).mean().item()


@torch.no_grad()
def trainer_logprobs(trainer: Any, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """(tokens,) log-probabilities of one completion as the loss takes them (with temperature)."""
    tokens = torch.tensor([[*prompt, *completion]], device=trainer.accelerator.device)
    ours, *_ = trainer._get_per_token_logps_and_entropies(
        trainer.model, tokens, torch.ones_like(tokens), len(completion), 1
    )
    return ours[0].float().cpu()


def without_pads(ids: list[list[int]], logprobs: Any, pad: int) -> tuple[list, Any, int]:
    """Completions cut before a sampled pad token, which Unsloth's masks (ids != pad) would drop
    from the middle of a sequence; and how many there were."""
    cuts = [tokens.index(pad) if pad in tokens else len(tokens) for tokens in ids]
    count = sum(cut < len(tokens) for cut, tokens in zip(cuts, ids, strict=True))
    if not count:
        return ids, logprobs, 0
    short = [list(tokens[:cut]) for cut, tokens in zip(cuts, ids, strict=True)]
    return short, logprobs and [row[:cut] for cut, row in zip(cuts, logprobs, strict=True)], count


@contextmanager
def random_adapter(model: Any) -> Iterator[None]:
    """Every lora_B drawn at random (seeded, apart from the global generators), then restored."""
    generator = torch.Generator().manual_seed(0)
    weights = [p for name, p in model.named_parameters() if "lora_B" in name]
    saved = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight in weights:
                noise = torch.randn(weight.shape, generator=generator) * PROBE_SCALE
                weight.copy_(noise.to(weight))
        yield
    finally:
        with torch.no_grad():
            for weight, value in zip(weights, saved, strict=True):
                weight.copy_(value)
