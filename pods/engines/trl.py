"""TRL's own generation as an engine: transformers' generate, or vLLM, also a server's.

TRL takes no seed per completion: it samples from torch's generator, which each step reseeds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pods import ranks
from pods.config.errors import EngineError
from pods.config.keys import TrainConfig
from pods.engines import Answers, Completion, Work

NO_SAMPLING = (  # keys of a generation_config that TRL sets, or that choose no token
    *("max_length", "max_new_tokens", "do_sample", "temperature", "top_p", "top_k"),
    *("repetition_penalty", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache"),
    *("cache_implementation", "transformers_version", "_from_model_config"),
)


@dataclass
class TrlEngine:
    """Generates by TRL's trainer. It cannot follow Work.full_length: its completions end at their
    end tokens.

    generate_ids: of pods.trl_adapter.TrlAdapter, (prompts, evaluation, greedy) -> token ids of each
    completion, log-probabilities or None. ends: the tokens that end a completion, the tokenizer's
    first. from_server: whether a vLLM server generates.
    """

    generate_ids: Callable[..., tuple]
    ends: list[int]
    from_server: bool = False

    def generate(self, works: Iterable[Work], *, logprobs: bool = False) -> Answers:
        """See Engine; only vLLM gives log-probabilities."""
        for work in works:
            prompts = work.prompts
            try:
                ids, values = self.generate_ids(prompts, work.evaluation, work.greedy)
            except OSError as error:  # requests' errors are OSErrors
                if not self.from_server:
                    raise
                raise EngineError(
                    f"the vLLM server gave no answer ({error}); start it, and run again to resume"
                ) from error
            if values is None or not logprobs:
                values = [None] * len(prompts)
            # strict: TRL may return too few
            rows = zip(prompts, ids, values, strict=True)
            completions = iter([self.completion(tokens, logps) for _, tokens, logps in rows])
            yield work, [[next(completions) for _ in request.seeds] for request in work.requests]

    def completion(self, ids: Sequence[int], logprobs: list[float] | None) -> Completion:
        """Cut after the first end token; TRL knows the tokenizer's only, and pads after others.
        TRL fails on an empty completion: it becomes one end token."""
        length = next((i for i, token in enumerate(ids, 1) if token in self.ends), len(ids))
        ids = list(ids[:length]) or self.ends[:1]
        return Completion(ids, ids[-1] not in self.ends, logprobs and logprobs[:length])


def generation_arguments(config: TrainConfig, ends: list[int], mode: str) -> dict[str, Any]:
    """Arguments of GRPOConfig if TRL generates; mode: see pods.engines.choose.vllm_mode."""
    engine, keys = config.engine, config.sampling
    if engine != "trl":  # Unsloth's trainer would set vLLM's value for "off" itself
        return {"top_k": keys.top_k or -1} if engine == "unsloth" else {}
    if mode == "none":
        return {"generation_kwargs": {"eos_token_id": ends}} if len(ends) > 1 else {}
    generation_kwargs: dict[str, Any] = {"stop_token_ids": ends}
    if keys.stop:
        generation_kwargs["stop"] = list(keys.stop)
    elif mode == "colocate":
        generation_kwargs["detokenize"] = False  # TRL decodes the ids itself
    return {
        "use_vllm": True,
        "vllm_mode": mode,
        "top_k": keys.top_k or -1,  # vLLM's value for "off"
        "generation_kwargs": generation_kwargs,
        # Only for colocate.
        "vllm_gpu_memory_utilization": config.vllm.gpu_memory_utilization,
        "vllm_enable_sleep_mode": config.vllm.standby,
        "vllm_max_model_length": keys.max_prompt_length + keys.max_completion_length,
    }


def reset_generation(model: Any) -> None:
    """Unset what TRL leaves to the model's generation_config, such as min_p or suppress_tokens:
    transformers' generate would sample other rollouts for it than every other engine."""
    defaults = model.generation_config
    reset = {key: value for key, value in defaults.to_diff_dict().items() if key not in NO_SAMPLING}
    for key in reset:
        setattr(defaults, key, None)
    if reset:
        ranks.say(f"generation_config of the model, not used in rollouts: {reset}")
