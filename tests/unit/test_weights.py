"""adapter_config.json is read before PEFT, which imports what some of its fields name."""

import shutil
from pathlib import Path

import pytest
from peft import LoraConfig

from pods.evaluation import targets
from pods.evaluation.targets import Store
from pods.models.weights import adapter_config, fault
from pods.runs import checkpoints
from tests.fake_run import edit_json, make_run


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_run(Path("checkpoints"), steps=(2, 4))


def seal(path: Path) -> None:
    """With the digests of the files as they are now."""
    (path / "meta.json").unlink()
    checkpoints.seal(path, {"step": int(path.name.removeprefix("checkpoint-"))})


EDITED = {
    "[]": "adapter_config.json cannot be read (",
    "[": "adapter_config.json cannot be read (Expecting",
    "[" * 200_000: "adapter_config.json cannot be read (",
}


@pytest.mark.parametrize("content", EDITED, ids=["list", "half", "deep"])
def test_an_edited_adapter_config_is_named_before_anything_loads(run, content):
    path = run / "checkpoint-4"
    (path / "adapter_config.json").write_text(content)
    seal(path)
    _, (problem, _) = checkpoints.newest_intact(run)
    assert problem.startswith(f"{path}: {EDITED[content]}")
    store = Store(Path("results"), "fake")
    (target,), (problem,) = targets.find(run, ["all"], store, "gsm8k")
    assert target.step == 2
    assert problem.startswith(f"{path}: {EDITED[content]}")
    assert "\n" not in problem


MAPPING = {
    "base_model_class": "Qwen2ForCausalLM",
    "parent_library": "transformers.models.qwen2.modeling_qwen2",
    "unsloth_fixed": True,
}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """adapter_config.json as PEFT writes it."""
    lora = LoraConfig(r=32, lora_alpha=32, target_modules=["q_proj"], task_type="CAUSAL_LM")
    lora.save_pretrained(folder := tmp_path_factory.mktemp("adapter"))
    return folder / "adapter_config.json"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("megatron_core", "collections"),  # modules that PEFT would import; this one is harmless
        ("auto_mapping", MAPPING | {"parent_library": "collections"}),
        ("auto_mapping", MAPPING | {"parent_library": "transformersx"}),
        ("auto_mapping", MAPPING | {"further": 1}),
        ("megatron_config", {"a": 1}),
        ("use_dora", True),
        ("of_tomorrow", "x"),
        ("peft_type", "LOHA"),
        ("init_lora_weights", "eva"),
        ("modules_to_save", ["lm_head"]),
    ],
)
def test_a_field_that_no_lora_of_ours_has_is_refused(adapter, tmp_path, name, value):
    file = tmp_path / adapter.name
    shutil.copy(adapter, file)
    edit_json(file, **{name: value})
    with pytest.raises(ValueError, match=f"^{name}"):
        adapter_config(file)


def test_fields_of_unsloth_and_empty_ones_of_a_later_peft_are_read(adapter, tmp_path):
    file = tmp_path / adapter.name
    shutil.copy(adapter, file)
    edit_json(file, auto_mapping=MAPPING, of_tomorrow=None)
    assert (adapter_config(file).r, adapter_config(file).target_modules) == (32, {"q_proj"})


def test_the_adapter_of_the_reference_is_read_too(run):
    path = run / "checkpoint-4"
    (path / "ref").mkdir()
    shutil.copy(path / "adapter_config.json", path / "ref")
    assert fault(path) is None
    edit_json(path / "ref" / "adapter_config.json", megatron_core="collections")
    assert fault(path).startswith("ref/adapter_config.json cannot be read (megatron_core=")
