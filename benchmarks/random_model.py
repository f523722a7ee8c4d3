"""A model of Qwen2.5-3B's shape with random weights, for machines without a hub.

Used by benchmarks/gpu_proof.py.
"""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 4096,
         "num_attention_heads": 4}  # fmt: skip


def write_random_model(folder: Path, small: bool) -> dict[str, Any]:
    """Write the model (small: a tiny one) and a tokenizer; returns nothing to report."""
    keys = json.loads((ROOT / "benchmarks" / "shapes" / "qwen2.5-3b-instruct.json").read_text())
    keys |= {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
    config = AutoConfig.for_model(**keys | (SMALL if small else {}))
    dtype = torch.float32 if small else torch.bfloat16
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(folder)
    # One token per character of the arithmetic questions; made-up words fill the vocabulary.
    words = ["<pad>", "<eos>", "<unk>", *"0123456789+-=?<>/ \n", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"w{i}" for i in range(config.vocab_size - len(words))]
    model = models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    special = {f"{name}_token": f"<{name}>" for name in ("eos", "pad", "unk")}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    return {}
