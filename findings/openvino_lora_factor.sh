#!/usr/bin/env bash
# OpenVINO GenAI 2026.4.1 applies a LoRA that PEFT 0.21.2 saved with the factor 1, whatever alpha and rank it was trained
# with. The number that its AdapterConfig takes is the factor itself, not LoRA's alpha, though its argument is called alpha.
# Guess: the factor is PEFT's, alpha / r = 8, or AdapterConfig(adapter, 32) makes it so, as alpha is 32.
# Seen: the greedy answers of a small random Llama are PEFT's with factor 1 without that number, with factor 32 for 32, and
# with PEFT's own (8) for 8. No line says that alpha is unknown. A policy served this way is not the one that was trained.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"  # a pyproject.toml in the working folder may constrain the versions
uv venv --quiet --python 3.11 env
uv pip install --quiet --python env/bin/python "openvino-genai==2026.4.1.0" "openvino==2026.4.1" \
    "openvino-tokenizers==2026.4.1.0" "optimum-intel==2.2.0" "nncf==3.4.0" "torch==2.15.0" "transformers==5.5.4" "peft==0.21.2"
HF_HUB_OFFLINE=1 env/bin/python - <<'PY'
import numpy as np
import openvino
import openvino_genai
import torch
from openvino_tokenizers import convert_tokenizer
from optimum.intel import OVModelForCausalLM
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

torch.manual_seed(0)
words = ["<pad>", "<end>", *(f"w{i}" for i in range(62))]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
config = LlamaConfig(vocab_size=len(words), eos_token_id=1, pad_token_id=0, initializer_range=0.3, **sizes)
model = LlamaForCausalLM(config).eval()
model.save_pretrained("base")
tokenizer.save_pretrained("base")
OVModelForCausalLM.from_pretrained("base", export=True, load_in_8bit=False, compile=False).save_pretrained("converted")
for name, converted in zip(("tokenizer", "detokenizer"), convert_tokenizer(tokenizer, with_detokenizer=True), strict=True):
    openvino.save_model(converted, f"converted/openvino_{name}.xml")

policy = get_peft_model(model, LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"]))
for name, weight in policy.named_parameters():
    if "lora_B" in name:
        torch.nn.init.normal_(weight, std=0.15)
policy.eval().save_pretrained("adapter")
prompt = torch.arange(10, 18)[None]


def peft_answer(factor):
    for layer in policy.modules():
        if isinstance(getattr(layer, "scaling", None), dict):
            layer.scaling["default"] = factor
    with torch.no_grad():
        answer = policy.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False)
    return answer[0, prompt.shape[1] :].tolist()


def genai_answer(*alpha):
    adapter = openvino_genai.Adapter("adapter/adapter_model.safetensors")
    chosen = openvino_genai.AdapterConfig(adapter, *alpha)
    pipe = openvino_genai.LLMPipeline("converted", "CPU", adapters=chosen, INFERENCE_PRECISION_HINT="f32")
    ids = openvino.Tensor(prompt.numpy()), openvino.Tensor(np.ones_like(prompt.numpy()))
    settings = openvino_genai.GenerationConfig(max_new_tokens=24, do_sample=False, eos_token_id=1)
    return list(pipe.generate(openvino_genai.TokenizedInputs(*ids), settings).tokens[0])


factors = 0.0, 1.0, 4.0, 8.0, 16.0, 32.0
theirs = [peft_answer(factor) for factor in factors]
assert len({*map(tuple, theirs)}) == len(factors)
for alpha, expected in (((), 1.0), ((8.0,), 8.0), ((32.0,), 32.0)):
    answer = genai_answer(*alpha)
    agree = [factor for factor, other in zip(factors, theirs, strict=True) if other == answer]
    print(f"AdapterConfig(adapter{''.join(f', {a}' for a in alpha)}) answers as PEFT with the factor {agree}; PEFT's own is 8.0")
    assert agree == [expected], "the behaviour has changed"
PY
