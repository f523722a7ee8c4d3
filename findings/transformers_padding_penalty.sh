#!/usr/bin/env bash
# transformers 5.17.0: generate(repetition_penalty=...) takes the padding to the left of a short prompt for tokens that the text has
# used. The mask that says what is padding is not read. Many models pad with the token that ends a text: TRL sets it so for every
# tokenizer without a pad token. Ending is then penalised in each row that has padding, and in no other.
# Guess: a row's next token and length do not depend on the other prompts of the batch, as without a penalty.
# Seen: with penalty 1.3 a short prompt ends its answer at the first token with probability 0.14 beside a longer prompt, and with
# 0.24 alone; its answers are about 1.8 times as long. The longer prompt, and a batch with another pad token, are as they should be.
# The length of an answer, and with it a length reward or a cut at max_new_tokens, depends on which prompts were drawn together.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.11 env
uv pip install --quiet --python env/bin/python "transformers==5.17.0" "torch==2.13.0"
HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES="" env/bin/python -W ignore - 2>progress <<'PY' || { tail -5 progress; exit 1; }
import torch
from transformers import GPTJConfig, GPTJForCausalLM

END, OTHER = 1, 0  # the end token, and a token that no text has
torch.manual_seed(0)
config = GPTJConfig(vocab_size=64, n_embd=64, n_layer=1, n_head=2, rotary_dim=16, n_positions=256, bos_token_id=2, eos_token_id=END)
model = GPTJForCausalLM(config).eval()
model.lm_head.bias.data[END] = 3.0  # an answer ends after about four tokens
model.lm_head.bias.data[OTHER] = -99.0
short, long = [5, 6, 7], list(range(10, 30))


def generate(prompts: list[list[int]], pad: int, **options):
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    torch.manual_seed(0)
    return model.generate(ids, attention_mask=mask, pad_token_id=pad, do_sample=True, top_k=0, **options), width


def chance_of_the_end(prompts: list[list[int]], pad: int, penalty: float) -> float:
    """Of the first prompt, at its first new token."""
    options = dict(repetition_penalty=penalty, max_new_tokens=1, output_scores=True, return_dict_in_generate=True)
    return generate(prompts, pad, **options)[0].scores[0][0].softmax(0)[END].item()


def mean_length(prompts: list[list[int]], pad: int, penalty: float) -> float:
    """Tokens of 400 answers to the first prompt, with the end token."""
    many = [prompt for prompt in prompts for _ in range(400)]
    texts, width = generate(many, pad, repetition_penalty=penalty, max_new_tokens=100)
    return ((texts[:400, width:] != END).cumprod(1).sum(1) + 1).double().mean().item()


seen = {}
for penalty in (1.0, 1.3):
    for name, prompts, pad in (
        ("short, alone", [short], END),
        ("short, beside long", [short, long], END),
        ("short, beside long, another pad token", [short, long], OTHER),
        ("long, beside short", [long, short], END),
    ):
        seen[penalty, name] = chance, length = chance_of_the_end(prompts, pad, penalty), mean_length(prompts, pad, penalty)
        print(f"penalty {penalty}, {name}: ends at once with probability {chance:.3f}, mean length {length:.2f}")
changed = (1.3, "short, beside long")
for key, (chance, length) in seen.items():
    if key != changed:
        assert 0.22 < chance < 0.26 and 3.3 < length < 5, "the behaviour has changed"
chance, length = seen[changed]
assert 0.12 < chance < 0.16 and 6 < length < 9, "the behaviour has changed"
PY
