#!/usr/bin/env bash
# TRL 1.16.0 with PEFT 0.21.2: the reference of GRPO's KL penalty is not the model before training if LoRA is initialised by
# PiSSA or OLoRA. Both move a part of each weight into the adapter, and TRL's reference is the model without its adapter.
# Guess: KL 0 at the first step, where the policy is the reference, as with the default init_lora_weights=True.
# Seen: 2.33 with "pissa" and 1.48 with "olora" for the small model below. Nothing warns of it. With beta > 0 the penalty then
# draws the policy to a model that lacks its largest directions, and the KL in the log measures the distance from that.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"  # uv applies the constraints of the project around it
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --python "$folder/env/bin/python" "trl==1.16.0" "peft==0.21.2" "torch==2.13.0" "transformers==5.17.0" "datasets==4.8.5" requests
HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES="" "$folder/env/bin/python" -W ignore - 2>"$folder/progress" <<'PY' || { tail -5 "$folder/progress"; exit 1; }
import contextlib
import sys

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

words = {word: i for i, word in enumerate(["<pad>", "<end>", "<unknown>", *map(str, range(61))])}
plain = Tokenizer(models.WordLevel(words, unk_token="<unknown>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<end>")
shape = dict(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)


def first_kl(init: bool | str) -> float:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(initializer_range=0.2, pad_token_id=0, eos_token_id=1, **shape))
    arguments = GRPOConfig(
        "run", max_steps=1, beta=0.04, num_generations=4, per_device_train_batch_size=4, max_completion_length=8,
        logging_steps=1, report_to="none", save_strategy="no", use_cpu=True, bf16=False,
    )
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **columns: [float(len(text)) for text in completions],
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["1 2 3"] * 4}),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=8, target_modules="all-linear", init_lora_weights=init),
    )
    with contextlib.redirect_stdout(sys.stderr):  # its progress
        trainer.train()
    return next(row["kl"] for row in trainer.state.log_history if "kl" in row)


seen = {init: first_kl(init) for init in (True, "pissa", "olora")}
print("KL of the first step:", seen)
assert seen[True] == 0
assert seen["pissa"] > 0.5 and seen["olora"] > 0.5, "the behaviour has changed"
PY
