"""init_from: a run from another run's weights, its adapter continued."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pods.config.errors import UserError
from pods.models import initial
from tests import processes
from tests.configs import compose
from tests.fake_run import add_checkpoint, make_run


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """checkpoints/old/checkpoint-2 in the working folder."""
    monkeypatch.chdir(tmp_path)
    return make_run(Path("checkpoints"), "old", steps=(2,), scale=0.05) / "checkpoint-2"


def test_an_adapter_is_continued(old: Path, tmp_path: Path) -> None:
    done = processes.run(
        tmp_path / "said", "run=new", f"init_from={old}", "prompts_per_step=2",
        "rollouts_per_prompt=8", "kept_per_prompt=4", "sampling.max_completion_length=8",
        "max_steps=1", "budget.train_seconds=null", "checkpoint.every_seconds=null",
        "optimizer.learning_rate=1e-12", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    weights = load_file(old / "adapter_model.safetensors")
    after = load_file("checkpoints/new/checkpoint-1/adapter_model.safetensors")
    assert weights.keys() == after.keys()
    for name, values in weights.items():
        torch.testing.assert_close(after[name], values, atol=1e-9, rtol=0)
    noted = json.loads(Path("checkpoints/new/meta.json").read_text())["init_from"]
    assert (noted["checkpoint"], noted["step"]) == (str(old), 2)
    digest = json.loads((old / "meta.json").read_text())["files"]["adapter_model.safetensors"]
    assert noted["sha256"] == {"adapter_model.safetensors": digest["sha256"]}


def spoil(old: Path) -> None:
    (old / "adapter_model.safetensors").write_bytes(b"")


def whole_model(old: Path) -> None:
    old.rename(old.parent / "checkpoint-1")
    add_checkpoint(old.parent, 2, full=True)


@pytest.mark.parametrize(
    ("change", "overrides", "said"),
    [
        (None, ["init_from=nowhere/checkpoint-3"], "init_from=nowhere/checkpoint-3: no finished"),
        (None, ["lora.rank=8"], "lora.rank=32 lora.alpha=32.0 lora.target_modules=[down_proj,"),
        (None, ["lora.rank=null"], "set these, or export it (scripts/export.py)"),
        (None, ["model.path=Qwen/Qwen2.5-3B-Instruct"], "set model.path=pods/tiny_policy model.n"),
        (spoil, [], "adapter_model.safetensors has 0 bytes"),
        (whole_model, [], "checkpoint-2: has no adapter; export it"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    old: Path, change: Callable[[Path], None] | None, overrides: list[str], said: str
) -> None:
    if change:
        change(old)
    with pytest.raises(UserError) as error:
        initial.check(compose(f"init_from={old}", *overrides))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
