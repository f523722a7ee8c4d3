"""A policy in training and a real vLLM engine on a CPU, in the environment of .ci/vllm-env.

    .venv-vllm/bin/python -m tests.vllm_engine <checkpoint with an adapter> <swaps>

Prints what it saw as JSON: how far the engine's log-probabilities are from the trainer's at each
version of the adapter, what the engine holds, and whether seeds decide.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from pods.engines import Limits, LivePolicy, Request, Sampling, Work
from pods.engines.vllm import VllmEngine
from pods.models import policy
from tests.fake_run import TINY, live_model, quickstart_config

TOKENIZER = policy.load_tokenizer(str(TINY))
LONG = "+".join(["1"] * 180)  # so that several blocks of 128 tokens come from the prefix cache
PROMPTS = [TOKENIZER.encode(f"<user>{q}=?<assistant>") for q in (LONG, "3+4-2", "9+9-2+1")]
SAMPLING = Sampling(temperature=0.7, top_p=1.0, top_k=0, max_tokens=8, max_prompt_length=512)
REQUESTS = [Request(prompt, range(2)) for prompt in PROMPTS]


def main() -> None:
    checkpoint, swaps = Path(sys.argv[1]), int(sys.argv[2])
    model, config = live_model(checkpoint), quickstart_config()
    generator = torch.Generator().manual_seed(0)
    weights = [p for name, p in model.named_parameters() if "lora_B" in name]
    gaps, held, folders = [], [], []
    with VllmEngine(config, TOKENIZER, SAMPLING, Limits(max_sequences=64), 32) as engine:
        for version in range(swaps):
            work = Work(REQUESTS, LivePolicy(model, version))
            ((_, groups),) = engine.generate([work], logprobs=True)
            gaps.append(gap(model, groups))
            held.append(len(engine._llm.llm_engine.list_loras()))
            folders.append(len(list(Path(engine._folder.name).iterdir())))
            with torch.no_grad():
                for weight in weights:
                    weight.add_(torch.randn(weight.shape, generator=generator) * 0.01)
            stale = gap(model, groups)
        live = LivePolicy(model, swaps)
        others = [Request(prompt, range(2, 4)) for prompt in PROMPTS]
        first, again, other = (
            groups
            for asked in (REQUESTS, REQUESTS, others)
            for _, groups in engine.generate([Work(asked, live)])
        )
    seen = {"gaps": gaps, "held": held, "folders": folders, "stale": stale}
    seen |= {"repeatable": first == again, "seeds_matter": first != other}
    print(json.dumps(seen))


def gap(model: Any, groups: list) -> float:
    """Mean |engine - trainer| log-probability of the drawn tokens, nats."""
    differences = []
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for completion in group:
            ids = completion.token_ids
            with torch.no_grad():
                logits = model.eval()(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 :]
            ours = (logits[:-1] / SAMPLING.temperature).log_softmax(-1)
            ours = ours.gather(1, torch.tensor(ids)[:, None])[:, 0]
            differences.append((ours - torch.tensor(completion.logprobs)).abs())
    return torch.cat(differences).mean().item()


if __name__ == "__main__":
    main()
