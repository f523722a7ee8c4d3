"""The suite's decoding loop in a TRL script: PodsTrainer(..., sampler=pods.FastSampler).

One prefill a prompt, not n, and the adapter added to a copy of the weights: a step takes 0.6
of the time (docs/trl.md). Each completion has its own seed, so it differs from TRL's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trl
from transformers import PreTrainedModel as Model

from pods.batch import Prompt, Rollout
from pods.engines import Sampling, requests_of
from pods.engines.decoding import decode, sped_up
from pods.engines.transformers import MergedCopy, can_be_merged, evaluated
from pods.requirements import requirements_of
from pods.trl_adapter import TrlAdapter, TrlSampler

UNREAD = {  # arguments of GRPOConfig that change completions -> the values that change nothing
    "use_vllm": (False,),
    "use_transformers_continuous_batching": (False,),
    "min_p": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "generation_kwargs": (None, {}),
    "cache_implementation": (None,),
}


class FastSampler(TrlSampler):
    """Samples from a LoRA or a whole model by pods/engines/decoding.py; prompts, texts and metrics
    are made by TRL. `model.generation_config` is not read.

    Args:
        trainer: whose policy is sampled from. ValueError if its weights are cut into shards.
    """

    def __init__(self, trainer: TrlAdapter) -> None:
        super().__init__(trainer)
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            raise ValueError(
                "sampler=FastSampler: needs whole weights in each process, not DeepSpeed or FSDP; "
                "leave sampler out"
            )
        args = trainer.args
        self.sampling = Sampling(
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=max(0, args.top_k or 0),  # vLLM's value for all tokens is -1
            max_tokens=args.max_completion_length,
            max_prompt_length=0,  # only vLLM reads it
            ends=tuple(trainer.end_tokens),
        )
        self.reads_logprobs = requirements_of(trainer.driver.algorithm).reads_logprobs
        self.copy = MergedCopy(trainer.model) if can_be_merged(trainer.model) else None

    @staticmethod
    def refuse(args: trl.GRPOConfig) -> None:
        """Raise ValueError for an argument that this sampler would not follow."""
        for key, unset in UNREAD.items():
            if getattr(args, key) not in unset:
                raise ValueError(
                    f"{key}={getattr(args, key)}: FastSampler does not read it; leave it unset, or "
                    "leave sampler out, and TRL generates"
                )
        for key in ("temperature", "max_completion_length"):
            if not getattr(args, key):
                raise ValueError(f"{key}={getattr(args, key)}: must be above 0 with FastSampler")

    def sample(self, wanted: list[tuple[Prompt, int]]) -> list[Rollout]:
        """Each rollout has a seed made of (seed, generation, question, index)."""
        with self.trainer.generating(partial(self.completions, wanted)):
            return super().sample(wanted)

    def completions(
        self, wanted: list[tuple[Prompt, int]], prompts: list[list[int]]
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """Token ids of a completion of each prompt, and log-probabilities if the algorithm reads
        them."""
        trainer = self.trainer
        requests = requests_of(wanted, prompts, trainer.args.seed, trainer.generation)
        with self.policy() as model:
            completions = decode(
                model, trainer.processing_class, requests, self.sampling, self.reads_logprobs
            )
        logprobs = [c.logprobs for c in completions] if self.reads_logprobs else None
        return [c.token_ids for c in completions], logprobs

    @contextmanager
    def policy(self) -> Iterator[Model]:
        """The model that decodes, with the weights as they are now."""
        if self.copy is not None:
            yield self.copy.refreshed(object())  # a version that was not there before
            return
        with evaluated(self.trainer.model) as model, sped_up(model):
            yield model
