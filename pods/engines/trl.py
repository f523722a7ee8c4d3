"""TRL's own generation as an engine: transformers' generate, or vLLM, also a server's.

TRL takes no seed per completion: it samples from torch's generator, which each step reseeds.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pods.config.keys import TrainConfig
from pods.engines import EVALUATION, Answers, Completion, Work


class TrlEngine:
    """Generates by a PodsTrainer; `ends` are the tokens that end a completion, the tokenizer's
    first. Work.full_length is beyond it: completions have their own ends."""

    def __init__(self, trainer: Any, ends: Sequence[int]) -> None:
        self.trainer, self.ends = trainer, list(ends)

    def generate(self, works: Iterable[Work], *, logprobs: bool = False) -> Answers:
        """As the protocol; log-probabilities come only from vLLM."""
        for work in works:
            prompts = [list(request.prompt) for request in work.requests for _ in request.seeds]
            ids, values = self.trainer.generate_ids(prompts, work.label == EVALUATION, work.greedy)
            values = values if logprobs and values is not None else [None] * len(prompts)
            rows = zip(prompts, ids, values, strict=True)  # raises if TRL returned too few
            completions = iter([self._completion(tokens, likely) for _, tokens, likely in rows])
            yield work, [[next(completions) for _ in r.seeds] for r in work.requests]

    def _completion(self, ids: Sequence[int], logprobs: list[float] | None) -> Completion:
        """Cut after the first end token; TRL knows the tokenizer's only, and pads after others.
        TRL fails on an empty completion: it becomes one end token."""
        end = next((i + 1 for i, token in enumerate(ids) if token in self.ends), None)
        ids = list(ids[:end]) or self.ends[:1]
        return Completion(ids, ids[-1] not in self.ends, logprobs and logprobs[:end])


def generation_arguments(config: TrainConfig, ends: list[int], mode: str) -> dict[str, Any]:
    """Arguments of GRPOConfig if TRL generates; mode: see pods.engines.choose.vllm_mode."""
    engine, keys = config.engine, config.sampling
    if engine != "trl":  # Unsloth's trainer would set vLLM's value for "off" itself
        return {"top_k": keys.top_k or -1} if engine == "unsloth" else {}
    if mode == "none":
        return {"generation_kwargs": {"eos_token_id": ends}} if len(ends) > 1 else {}
    ids_alone = {"detokenize": False} if mode == "colocate" else {}  # TRL decodes them itself
    text = {"stop": list(keys.stop)} if keys.stop else ids_alone
    arguments = {
        "use_vllm": True,
        "vllm_mode": mode,
        "top_k": keys.top_k or -1,  # vLLM's value for "off"
        "generation_kwargs": {"stop_token_ids": ends, **text},
    }
    if mode == "server":
        return arguments | {"vllm_server_base_url": "http://127.0.0.1:8000"}  # of `trl vllm-serve`
    return arguments | {
        "vllm_gpu_memory_utilization": config.vllm.gpu_memory_utilization,
        "vllm_enable_sleep_mode": config.vllm.standby,
        "vllm_max_model_length": keys.max_prompt_length + keys.max_completion_length,
    }
