"""vLLM as Unsloth builds it, for evaluation: its settings for the card, its quantised base weights.

uv run evaluate_run.py run=<run> engine=unsloth
"""

from typing import Any

import torch

from pods.engines import loading
from pods.engines.vllm import VllmEngine
from pods.models import policy


class UnslothEngine(VllmEngine):
    def _start(self, model: str) -> Any:
        from unsloth import FastLanguageModel

        config = self._config.model
        share = self._share()
        with loading.explained(model, f"gpu_memory_utilization={share:.2f}"):
            self._weights, _ = FastLanguageModel.from_pretrained(  # the engine uses its tensors
                model_name=policy.locate(model),
                max_seq_length=self._sampling.max_prompt_length + self._sampling.max_tokens,
                dtype=getattr(torch, config.dtype),
                load_in_4bit=config.load_in_4bit,
                load_in_16bit=not config.load_in_4bit,
                use_exact_model_name=True,  # else a 4-bit repository of Unsloth's takes its place
                fast_inference=True,
                max_lora_rank=self._rank or 8,
                gpu_memory_utilization=share,
            )
        return self._weights.vllm_engine

    def _stop(self) -> None:
        self._weights = None
        super()._stop()
