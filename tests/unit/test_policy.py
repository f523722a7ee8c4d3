"""What is known of a base when it loads: missing weights, and what cannot be saved later."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from pods.config.errors import UserError
from pods.models.policy import load_model, load_tokenizer, load_transformers
from tests.configs import compose
from tests.fake_run import TINY, edit_json

UP = "model.layers.2.mlp.up_proj.weight"


@pytest.fixture
def base(tmp_path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "base"))


def edit_weights(base: Path, act: Callable[[dict], Any]) -> None:
    weights = load_file(base / "model.safetensors")
    act(weights)
    save_file(weights, base / "model.safetensors", {"format": "pt"})


WEIGHTS = {
    "lm_head.weight": lambda base: edit_json(base / "config.json", tie_word_embeddings=False),
    UP: lambda base: edit_weights(base, lambda weights: weights.pop(UP)),
    f"{UP} has the shape (3, 3), not (256, 128)": lambda base: edit_weights(
        base, lambda weights: weights.update({UP: torch.zeros(3, 3)})
    ),
    "header too small": lambda base: (base / "model.safetensors").write_bytes(b"cut"),
}


@pytest.mark.parametrize("part", WEIGHTS)
def test_a_base_whose_weights_are_not_all_there_is_refused_in_a_line(base, part):
    WEIGHTS[part](base)
    with pytest.raises(UserError) as error:
        load_model(str(base), "float32")
    assert str(error.value).startswith(f"model.path={base}: ")
    assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_an_adapter_in_place_of_a_model_is_answered_with_the_merge(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match=r"export\.py run=<run> checkpoint=<step>$"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    "flags",
    [
        {"temperature": 0.7, "top_p": 0.9},
        {"do_sample": False, "min_p": 0.1},
        {"num_beams": 1, "early_stopping": True, "length_penalty": 2.0},
    ],
)
def test_generation_flags_without_effect_do_not_prevent_a_save(base, tmp_path, flags):
    """transformers loads them with a warning, and save_pretrained refuses them."""
    edit_json(base / "generation_config.json", eos_token_id=[1, 5], **flags)
    load_model(str(base), "float32").save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert saved["eos_token_id"] == [1, 5]
    effects = {"num_beams", "do_sample"}
    assert not (flags.keys() - effects) & saved.keys()


def test_generation_flags_with_an_effect_stay(base, tmp_path):
    edit_json(base / "generation_config.json", do_sample=True, temperature=0.7)
    load_model(str(base), "float32").save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert (saved["do_sample"], saved["temperature"]) == (True, 0.7)


@pytest.mark.parametrize("rank", [None, 4])
def test_a_base_that_cannot_be_saved_is_refused_before_the_training(base, rank):
    """Such as one whose config asks for attentions. A checkpoint of an adapter has no config."""
    edit_json(base / "config.json", output_attentions=True)
    config = compose(f"model.path={base}", f"lora.rank={rank or 'null'}")
    tokenizer = load_tokenizer(str(base))
    if rank:
        load_transformers(config, tokenizer)
        return
    with pytest.raises(UserError, match=r"^model\.path=.*output_attentions"):
        load_transformers(config, tokenizer)


def test_a_tokenizer_that_cannot_be_saved_is_refused_before_the_training(base, monkeypatch):
    tokenizer = load_tokenizer(str(base))
    monkeypatch.setattr(tokenizer, "save_pretrained", Mock(side_effect=TypeError("not JSON")))
    with pytest.raises(UserError, match=r"^model\.path=.*not JSON"):
        load_transformers(compose(f"model.path={base}"), tokenizer)


def test_a_config_that_cannot_be_read_is_refused_in_a_line(base):
    edit_json(base / "config.json", rope_parameters={"rope_type": "yarn"})
    with pytest.raises(UserError, match=r"^model\.path=.*factor"):
        load_tokenizer(str(base))


def test_a_base_that_can_be_saved_leaves_no_file(base):
    before = {*base.parent.rglob("*")}
    policy = load_transformers(compose(f"model.path={base}"), load_tokenizer(str(base)))
    assert {*base.parent.rglob("*")} == before
    names = AutoModelForCausalLM.from_pretrained(base).state_dict().keys()
    assert policy.model.state_dict().keys() == names
