"""Checkpoints whose digests were written again with edited files: their contents are looked at."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from pods.config.errors import UserError
from pods.evaluation import targets
from pods.evaluation.targets import Store
from pods.models.weights import adapter_config, fault
from pods.runs import checkpoints
from pods.runs.folder import RunFolder
from tests.fake_run import TINY, add_checkpoint, edit_json, make_run, quickstart_config
from tests.figures import refused

ADAPTER = "adapter_model.safetensors"
UP = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"
CHECK = partial(fault, base=str(TINY))
STATE = '{"fresh_drawn": 0, "history": {"a": [[1, 0.5, null, true]]}}'


def step_of(path: Path) -> int:
    return int(path.name.removeprefix("checkpoint-"))


def complete(path: Path) -> None:
    """Add the training state to a checkpoint."""
    torch.save({}, path / "optimizer.pt")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step_of(path)}))
    (path / "pods_state.json").write_text(STATE)
    seal(path)


def seal(path: Path) -> None:
    """With the digests of the files as they are now."""
    (path / "meta.json").unlink()
    checkpoints.seal(path, {"step": step_of(path)})


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = make_run(Path("checkpoints"), steps=(2, 4))
    for path in run.glob("checkpoint-*"):
        complete(path)
    return run


def edit(act: Callable[[dict[str, torch.Tensor]], object], path: Path) -> None:
    tensors = load_file(path / ADAPTER)
    act(tensors)
    save_file(tensors, path / ADAPTER, {"format": "pt"})


def keep_three(tensors):
    for name in sorted(tensors)[3:]:
        del tensors[name]


def lie_about_the_header(path):
    content = (path / ADAPTER).read_bytes()
    (path / ADAPTER).write_bytes((2**40).to_bytes(8, "little") + content[8:])


def other_rank(path):
    edit_json(path / "adapter_config.json", r=7)


def field(name: str, value: object, path: Path) -> None:
    edit_json(path / "adapter_config.json", **{name: value})


def write(name: str, content: str, path: Path) -> None:
    (path / name).write_text(content)


def cut(name: str, path: Path) -> None:
    os.truncate(path / name, 100)


WEIGHTS = {
    f"{ADAPTER} lacks 39 of 42 tensors": partial(edit, keep_three),
    f"{ADAPTER}: {UP} has the shape (3, 3), not (32, 128)": partial(
        edit, lambda tensors: tensors.update({UP: torch.zeros(3, 3)})
    ),
    f"{ADAPTER}: {UP} is not finite": partial(
        edit, lambda tensors: tensors[UP][1, 2].fill_(torch.nan)
    ),
    f"{ADAPTER} cannot be read (": partial(cut, ADAPTER),
    f"{ADAPTER} cannot be read (Error": lie_about_the_header,
    f"{ADAPTER}: base_model.model.model.layers.0.": other_rank,
    "adapter_config.json cannot be read (": partial(write, "adapter_config.json", "[]"),
    "adapter_config.json cannot be read (Expecting": partial(write, "adapter_config.json", "["),
    "adapter_config.json cannot be read (megatron_core=": partial(
        field, "megatron_core", "collections"
    ),
}
STATES = {
    "optimizer.pt cannot be read": partial(cut, "optimizer.pt"),
    "pods_state.json cannot be read (": partial(write, "pods_state.json", "[]"),
    "pods_state.json cannot be read (Invalid": partial(write, "pods_state.json", "[" * 200_000),
    "pods_state.json cannot be read (Input": partial(
        write, "pods_state.json", STATE.replace("0.5, ", "")
    ),
    "trainer_state.json is of step 5": partial(write, "trainer_state.json", '{"global_step": 5}'),
}


@pytest.mark.parametrize("reason", [*WEIGHTS, *STATES])
def test_a_resume_names_the_file_and_takes_the_checkpoint_before(run, reason):
    path = run / "checkpoint-4"
    (WEIGHTS | STATES)[reason](path)
    seal(path)
    start, (problem,) = checkpoints.newest_intact(run, check=CHECK)
    assert start.step == 2
    assert problem.startswith(f"{path}: {reason}")
    assert "\n" not in problem


@pytest.mark.parametrize("reason", WEIGHTS)
def test_an_evaluation_names_the_file_and_scores_the_others(run, reason):
    WEIGHTS[reason](run / "checkpoint-2")
    seal(run / "checkpoint-2")
    store = Store(Path("results"), "fake")
    (target,), (problem,) = targets.find(run, ["all"], store, "gsm8k", CHECK)
    assert target.step == 4
    assert problem.startswith(f"{run / 'checkpoint-2'}: {reason}")


@pytest.mark.parametrize("merge", ["true", "false"])
def test_an_edited_adapter_is_not_exported(run, capsys, merge):
    reason = next(iter(WEIGHTS))
    WEIGHTS[reason](run / "checkpoint-4")
    seal(run / "checkpoint-4")
    line = refused(capsys, "scripts/export.py", "run=fake", "out=exported", f"merge={merge}")
    assert reason in line


def test_all_weights_of_another_shape_or_not_finite_are_named(run):
    path = add_checkpoint(run, 6, full=True)
    complete(path)
    assert checkpoints.newest_intact(run, check=CHECK)[0].step == 6
    name = "model.layers.0.mlp.up_proj.weight"
    for value, reason in ((torch.zeros(3, 3), "has the shape (3, 3), not "), (None, "lacks 1 of ")):
        tensors = load_file(path / "model.safetensors")
        del tensors[name]
        save_file(
            tensors | ({name: value} if value is not None else {}), path / "model.safetensors"
        )
        seal(path)
        _, (problem,) = checkpoints.newest_intact(run, check=CHECK)
        assert reason in problem


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
    assert CHECK(path) is None
    field("megatron_core", "collections", path / "ref")
    assert CHECK(path).startswith("adapter_config.json cannot be read (megatron_core=")


def test_the_folder_of_a_run_looks_at_its_checkpoints(run):
    shutil.rmtree(run / "checkpoint-2")
    WEIGHTS[f"{ADAPTER} lacks 39 of 42 tensors"](run / "checkpoint-4")
    seal(run / "checkpoint-4")
    config = quickstart_config("run=fake", "output_dir=checkpoints")
    with pytest.raises(UserError, match=r"checkpoint-4: .*lacks 39 of 42 tensors"):
        RunFolder(config).find_start()
