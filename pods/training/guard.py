"""Proof that an engine samples from the policy that is trained.

An engine that holds the base weights, or an old adapter, gives rollouts without any error. The
guard compares log-probabilities of engine and trainer. Not in the published code.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from accelerate.utils import is_peft_model

from pods.config.errors import RunFailed
from pods.engines import EVALUATION, Advance, Completion, Engine, LivePolicy, Request, Work
from pods.models import FALLBACK
from pods.trainer import PodsTrainer

FIRST_STEPS = 3  # of the run and of this process: always checked, then every check_every-th
CHECKED_COMPLETIONS = 4  # per comparison: one small forward pass each
PROBE_SCALE = 0.05  # standard deviation of lora_B in the probe: far above the rounding of kernels


class Guard(AbstractContextManager):
    """An engine of a training, whose rollouts are compared with the trainer's log-probabilities.

    `metrics` holds those of the newest step. The engine is closed by whoever opened it.

    Args:
        max_gap: nats, largest accepted mean |engine - trainer| log-probability of a token.
        check_every: steps between two comparisons.
    """

    def __init__(
        self, engine: Engine, trainer: PodsTrainer, max_gap: float, check_every: int
    ) -> None:
        self.engine, self.trainer = engine, trainer
        self.max_gap, self.check_every = max_gap, check_every
        self.metrics: dict[str, float] = {}
        self.proof: dict[str, float] = {}  # of the one probe, which may fall into the warm-up
        self.calls = 0

    def generate(
        self, works: Iterable[Work], *, logprobs: bool = False, advance: Advance | None = None
    ) -> Iterator[tuple[Work, list[list[Completion]]]]:
        """As the protocol. Raises RunFailed where the rollouts are not the policy's.

        A resumed run makes more checks than its metrics show, so that they equal those of a run
        that was never stopped.
        """
        for work in works:
            checked = work.label != EVALUATION and not work.full_length
            step = self.trainer.state.global_step
            wanted = logprobs or (checked and self.due(step))
            ((_, groups),) = self.engine.generate([work], logprobs=wanted, advance=advance)
            if checked:
                self.check(work, groups, step)
            yield work, groups

    def due(self, step: int) -> bool:
        """Whether the rollouts of `step` are compared, and so need log-probabilities."""
        return self.calls < FIRST_STEPS or self._regular(step)

    def _regular(self, step: int) -> bool:
        return step < FIRST_STEPS or step % self.check_every < self.trainer.num_iterations

    def check(self, work: Work, groups: list[list[Completion]], step: int) -> None:
        """Compare the first completions of a round, where due, and probe once."""
        requests, policy, gaps = work.requests, work.weights, {}
        if self.due(step):
            pairs = [
                (r.prompt, c) for r, group in zip(requests, groups, strict=True) for c in group
            ]
            gaps = self._compare(pairs[:CHECKED_COMPLETIONS])
        if self.calls == 0 and is_peft_model(policy.model):  # else all weights are handed over
            self.proof = self._probe(requests, policy)
        self.calls += 1
        self.metrics = (gaps if self._regular(step) else {}) | (self.proof if step == 0 else {})

    def _compare(self, pairs: list[tuple[Any, Completion]]) -> dict[str, float]:
        gap = self.gap(pairs)
        if not gap <= self.max_gap:  # also where it is NaN
            raise RunFailed(
                f"engine and trainer disagree: log-probabilities differ by {gap:.3f} nats on "
                f"average, more than engine.max_logprob_gap={self.max_gap}; the rollouts do not "
                "come from the policy that is trained (rounding on a GPU gives 0.01 to 0.03; "
                f"{FALLBACK})"
            )
        return {"engine/logprob_gap": gap}

    def _probe(self, requests: Sequence[Request], policy: LivePolicy) -> dict[str, float]:
        """Generate once with an adapter that differs from zero: a fresh one changes nothing, so the
        comparison of the first step would also pass if the engine ignored it."""
        asked = [Request(r.prompt, r.seeds[:1]) for r in requests[:CHECKED_COMPLETIONS]]
        with torch.random.fork_rng(), random_adapter(policy.model):
            probe = Work(asked, LivePolicy(policy.model, "probe"), EVALUATION)
            ((_, done),) = self.engine.generate([probe], logprobs=True)
            pairs = [(r.prompt, c) for r, (c,) in zip(asked, done, strict=True)]
            seen = self.gap(pairs)
        without = self.gap(pairs)
        if not seen < without / 2:
            raise RunFailed(
                f"the engine ignores the adapter: a changed adapter left its log-probabilities "
                f"{seen:.3f} nats from the trainer's, and {without:.3f} nats from those without "
                "the change"
            )
        return {"engine/probe_gap": seen, "engine/probe_gap_without_adapter": without}

    def gap(self, pairs: list[tuple[Any, Completion]]) -> float:
        """Mean |engine - trainer| log-probability over the tokens of (prompt, completion), nats."""
        differences = []
        for prompt, completion in pairs:
            if completion.logprobs is None:
                raise RunFailed(
                    "the engine returned no log-probabilities; nothing proves its weights"
                )
            theirs = torch.tensor([float("nan") if p is None else p for p in completion.logprobs])
            ours = self.trainer.token_logprobs(list(prompt), completion.token_ids)
            differences.append((ours - theirs).abs())
        return torch.cat(differences).mean().item()

    def __exit__(self, *_: object) -> None: ...


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
