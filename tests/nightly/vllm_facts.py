"""What differs between versions of vLLM (docs/versions.md), printed as JSON: by vLLM itself, on the
embedded policy, in an environment of .ci/vllm-env.

    .venv-vllm/bin/python -m tests.nightly.vllm_facts
"""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    OMP_NUM_THREADS="1",
)

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

from tests.fake_run import TINY

PROMPT = [22, 17, 23, 35]
LORA = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "down_proj"]}
ADAPTERS = {  # the factors: 2, 5.7, 8 and 8
    "plain": {},
    "use_rslora": {"use_rslora": True},
    "alpha_pattern": {"alpha_pattern": {"q_proj": 64, "down_proj": 64}},
    "rank_pattern": {"rank_pattern": {"q_proj": 2, "down_proj": 2}},
}


def completions(llm: LLM, seeds: list[int | None]) -> list[list[int]]:
    """Of one prompt, all in one batch."""
    params = [
        SamplingParams(seed=seed, temperature=2.0, max_tokens=6, ignore_eos=True) for seed in seeds
    ]
    outputs = llm.generate([{"prompt_token_ids": PROMPT}] * len(seeds), params, use_tqdm=False)
    return [[*output.outputs[0].token_ids] for output in outputs]


def gap(llm: LLM, name: str, number: int, folder: Path) -> list[float]:
    """|vLLM's log-probability of a token - PEFT's| with this adapter, and with its base."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(**LORA, **ADAPTERS[name]))
    for key, weight in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(folder / name)
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=0, ignore_eos=True)
    request = LoRARequest(name, number, str(folder / name))
    (output,) = llm.generate(
        [{"prompt_token_ids": PROMPT}], params, lora_request=request, use_tqdm=False
    )
    ((token, answer),) = output.outputs[0].logprobs[0].items()
    with torch.no_grad():
        own = model(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)[token]
        with model.disable_adapter():
            without = base(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)[token]
    return [abs(answer.logprob - value.item()) for value in (own, without)]


def main(folder: Path) -> None:
    llm = LLM(
        str(TINY),
        enable_lora=True,
        max_lora_rank=8,
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=64,
        generation_config="vllm",
    )
    seeds = [*range(8)]
    seeded = completions(llm, seeds)
    mixed = completions(llm, [*seeds, None])[:-1]
    facts = {
        "seeded": seeded,
        "again": completions(llm, seeds) == seeded,
        "beside_one_without": mixed == seeded,
        "gaps": {name: gap(llm, name, i, folder) for i, name in enumerate(ADAPTERS, 1)},
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(Path(folder))
