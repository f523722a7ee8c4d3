"""A policy in training and a real vLLM engine on a CPU, in the environment of .ci/vllm-env.

    .venv-vllm/bin/python -m tests.vllm_engine <checkpoint with an adapter> <swaps>

Prints what it saw as JSON: how far the engine's log-probabilities are from the trainer's at each
version of the adapter, what the engine holds, and whether seeds decide.
"""

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch

from pods.engines import Limits, LivePolicy, Request, Sampling, Work
from pods.engines.vllm import VllmEngine
from pods.models import policy
from pods.training.guard import Guard
from tests.fake_run import TINY, live_model, logps_of, quickstart_config

TOKENIZER = policy.load_tokenizer(str(TINY))
LONG = "+".join(["1"] * 180)  # so that several blocks of 128 tokens come from the prefix cache
PROMPTS = [TOKENIZER.encode(f"<user>{q}=?<assistant>") for q in (LONG, "3+4-2", "9+9-2+1")]
SAMPLING = Sampling(temperature=2.0, top_p=1.0, top_k=0, max_tokens=8, max_prompt_length=512)
REQUESTS = [Request(prompt, range(2)) for prompt in PROMPTS]


def main() -> None:
    checkpoint, swaps = Path(sys.argv[1]), int(sys.argv[2])
    model, config = live_model(checkpoint), quickstart_config()
    generator = torch.Generator().manual_seed(0)
    weights = [p for name, p in model.named_parameters() if "lora_B" in name]
    logprobs = partial(logps_of, model.eval(), temperature=SAMPLING.temperature)
    guard = Guard(None, SimpleNamespace(token_logprobs=logprobs), max_gap=0, check_every=1)
    gaps, held, folders = [], [], []
    with VllmEngine(config, TOKENIZER, SAMPLING, Limits(max_sequences=64), 32) as engine:
        for version in range(swaps):
            work = Work(REQUESTS, LivePolicy(model, version))
            ((_, groups),) = engine.generate([work], logprobs=True)
            gaps.append(guard.gap(REQUESTS, groups))
            held.append(len(engine._llm.llm_engine.list_loras()))
            folders.append(len(list(Path(engine._folder.name).iterdir())))
            with torch.no_grad():
                for weight in weights:
                    weight.add_(torch.randn(weight.shape, generator=generator) * 0.01)
            stale = guard.gap(REQUESTS, groups)
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


if __name__ == "__main__":
    main()
