#!/usr/bin/env bash
# mlx-lm 0.32.2: its sampler, also that of mlx_lm.generate and the server, cuts by top_p and min_p what is improbable at temperature 1,
# and then draws from the rest at the temperature that is asked for. transformers 5.17.0 cuts at the temperature itself. The docs of
# make_sampler say what top_p and min_p do, and not at which temperature.
# Guess: the same settings give the distribution of transformers. Seen: at temperature 1 only. Of the probabilities 0.5, 0.22, 0.12,
# 0.07, ... with temperature 0.6 and top_p 0.8, or min_p 0.2, three tokens are left (0.74, 0.19, 0.07), in transformers two (0.8, 0.2).
# Above temperature 1 fewer are left than in transformers. A checkpoint that is compared on a Mac and on a GPU with the settings of its
# model card is two policies, and log-probabilities that are computed afterwards with these settings are not those of the sampler.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --python env/bin/python "mlx[cpu]==0.32.4" "mlx-lm==0.32.2" "transformers==5.17.0" "torch==2.13.0"
env/bin/python -W ignore - 2>progress <<'PY' || { tail -5 progress; exit 1; }
import mlx.core as mx
import numpy as np
import torch
from mlx_lm.sample_utils import make_sampler
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

P = [0.5, 0.22, 0.12, 0.07, 0.05, 0.025, 0.015]
DRAWS = 200_000
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(P), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))


def with_mlx(**options) -> np.ndarray:
    mx.random.seed(0)
    log_probabilities = mx.array(np.tile(np.log(P).astype(np.float32), (DRAWS, 1)))
    return np.bincount(np.array(make_sampler(**options)(log_probabilities)), minlength=len(P)) / DRAWS


def with_transformers(temp: float, **options) -> np.ndarray:
    """The probabilities from which model.generate draws."""
    config = GenerationConfig(do_sample=True, temperature=temp, top_k=0, **options)
    warpers = model._get_logits_processor(config)
    return warpers(None, torch.tensor([P]).log()).softmax(-1)[0].numpy()


for options, same in (
    ({"temp": 1.0}, True),
    ({"temp": 0.6}, True),
    ({"temp": 1.0, "top_p": 0.8}, True),
    ({"temp": 1.0, "min_p": 0.2}, True),
    ({"temp": 0.6, "top_p": 0.95}, False),
    ({"temp": 0.6, "top_p": 0.8}, False),
    ({"temp": 0.6, "min_p": 0.2}, False),
    ({"temp": 1.5, "top_p": 0.8}, False),
    ({"temp": 1.5, "min_p": 0.2}, False),
):
    a, b = with_mlx(**options), with_transformers(**options)
    distance = np.abs(a - b).sum() / 2
    print(f"{options}: mlx-lm {a.round(2)}, transformers {b.round(2)}, total variation {distance:.3f}")
    assert distance < 0.005 if same else distance > 0.01, "the behaviour has changed"
    if not same:
        tokens = (a > 0).sum(), (b > 0).sum()
        assert (tokens[0] > tokens[1]) == (options["temp"] < 1), "the behaviour has changed"
PY
