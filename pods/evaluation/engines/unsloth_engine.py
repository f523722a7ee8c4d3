"""Unsloth as the engine: its own fast attention and cache, adapters switched as with transformers.

Its forward pass takes no foreign cache, so the loop is Unsloth's `generate`; the draw is ours.
    uv run evaluate_run.py run=<run> backend=unsloth
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from pods import policy
from pods.config import TrainConfig
from pods.evaluation.engines.decoding import Draw, pad_left, upto_stop
from pods.evaluation.engines.transformers_engine import TransformersEngine


class UnslothEngine(TransformersEngine):
    def _load(self, config: TrainConfig) -> Any:
        from unsloth import FastLanguageModel

        model, _ = FastLanguageModel.from_pretrained(
            policy.locate(config.model.path),
            max_seq_length=self._sampling.max_prompt_length + self._sampling.max_tokens,
            load_in_4bit=config.model.load_in_4bit,
            dtype=getattr(torch, config.model.dtype),
        )
        FastLanguageModel.for_inference(model)
        # Only the stop tokens of the model's own generation config are wanted: its repetition
        # penalty (Qwen's is 1.05) and its top-k would creep in where ours are unset.
        stops = model.generation_config.eos_token_id
        model.generation_config = GenerationConfig(eos_token_id=stops)
        return model

    @torch.inference_mode()
    def _decode(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[list[int]]:
        ids, mask = pad_left(prompts, self._model.device)
        draw = Draw(self._sampling, seeds, self._model.device)
        output = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            logits_processor=LogitsProcessorList([Forced(draw, ids.shape[1])]),
            generation_config=GenerationConfig(
                max_new_tokens=self._sampling.max_tokens,
                do_sample=False,  # Forced has drawn; what is left is an argmax
                eos_token_id=self._stops,
                pad_token_id=self._tokenizer.pad_token_id,
            ),
        )
        return [upto_stop(row, self._stops) for row in output[:, ids.shape[1] :].tolist()]


class Forced(LogitsProcessor):
    """Leaves every row only the token that was drawn for it."""

    def __init__(self, draw: Draw, prompt_width: int) -> None:
        self._draw, self._prompt_width = draw, prompt_width

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(len(scores), device=scores.device)
        token = self._draw(scores, rows, input_ids.shape[1] - self._prompt_width)
        return torch.full_like(scores, -torch.inf).scatter_(1, token[:, None], 0.0)
