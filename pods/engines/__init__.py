"""Engines turn prompts into completions by one protocol for training, evaluation and the guard."""

import hashlib
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pods.batch import Completion, Prompt

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Read by a vLLM of ours, of TRL or of Unsloth (docs/gpu.md has the reasons).
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")


@dataclass(frozen=True)
class Sampling:
    """How completions are sampled; temperature 0 is greedy, lengths are in tokens."""

    temperature: float
    top_p: float
    top_k: int  # 0: all tokens
    max_tokens: int
    max_prompt_length: int
    stop: tuple[str, ...] = ()  # strings that end a completion, beside the end tokens
    ends: tuple[int, ...] = ()  # tokens that end one; none: those of pods.models.policy.end_tokens

    @property
    def narrowed(self) -> bool:
        """Whether vLLM gives log-probabilities only after top-k and top-p, unlike the trainer."""
        return (self.top_k > 0 or self.top_p < 1) and self.temperature not in (0, 1)


@dataclass(frozen=True)
class Limits:
    """Memory limits of the machine; none of them changes a completion by more than rounding."""

    max_sequences: int | None = None  # completions at once; null: all that are asked for
    gpu_memory_utilization: float | None = None  # vLLM: share of the card; null: the free share


@dataclass(frozen=True)
class LivePolicy:
    """The policy in training; `version` changes whenever its weights do."""

    model: "PeftModel | PreTrainedModel"  # with one adapter, or without
    version: Hashable


Weights = Path | LivePolicy | None  # a checkpoint folder (adapter or full weights), live, the base


@dataclass(frozen=True)
class Request:
    """One prompt, and a seed for each of its completions."""

    prompt: Sequence[int]  # token ids
    seeds: Sequence[int]  # 63 bits each


@dataclass(frozen=True)
class Work:
    """Requests to one policy, generated and returned together."""

    requests: Sequence[Request]
    weights: Weights = None
    full_length: bool = False  # to the length limit, past every end (the warm-up)
    evaluation: bool = False  # prompts that are generated once, not n times
    greedy: bool = False  # the likeliest token each time, whatever the temperature

    @property
    def prompts(self) -> list[list[int]]:
        """The prompt of each completion."""
        return [list(request.prompt) for request in self.requests for _ in request.seeds]


Groups = list[list[Completion]]  # one list per request, one completion per seed
Answers = Iterator[tuple[Work, Groups]]  # in the order of the works


class Engine(AbstractContextManager, Protocol):
    """A context manager: its memory is freed at the end of the block."""

    def generate(self, works: Iterable[Work], *, logprobs: bool = False) -> Answers:
        """Each work with its completions, one for each seed of each request, in their order.

        Works are read as they are needed. logprobs: with the log-probability of each token under
        the sampling temperature, if the engine can give it. Raises EngineError.
        """


def seed_of(*parts: object) -> int:
    """63 bits as a function of the parts: (seed, step, question id, index) in training."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def requests_of(
    wanted: Sequence[tuple[Prompt, int]], prompts: Sequence[Sequence[int]], seed: int, step: int
) -> list[Request]:
    """Requests for these (prompt, index) pairs with their token ids: one for each run of neighbours
    with the same prompt. A completion's seed is made of (seed, step, question, index)."""
    requests = []
    pairs = zip(wanted, prompts, strict=True)
    for _, neighbours in groupby(pairs, key=lambda pair: id(pair[0][0])):
        rows = list(neighbours)
        seeds = [seed_of(seed, step, prompt, index) for (prompt, index), _ in rows]
        requests.append(Request(rows[0][1], seeds))
    return requests


def texts(
    tokenizer: "PreTrainedTokenizerBase", completions: Sequence[Completion], stop: Sequence[str]
) -> list[str]:
    """The completions as text, without special tokens and from the first stop string on."""
    decoded = tokenizer.batch_decode([c.token_ids for c in completions], skip_special_tokens=True)
    for string in stop:
        decoded = [text.partition(string)[0] for text in decoded]
    return decoded
