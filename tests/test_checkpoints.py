"""Checkpoints by number, not by name; damage is found before use; the disk has all before the name.

Kills and full disks of a whole run are in tests/test_faults.py.
"""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pods.runs import checkpoints
from tests.test_files import of, record


def add(run: Path, step: int) -> Path:
    """A finished checkpoint with contents that name its step."""
    path = run / f"checkpoint-{step}"
    (path / "global_step1").mkdir(parents=True)
    (path / "adapter_model.safetensors").write_text(f"adapter of {step}")
    (path / "optimizer.pt").write_text(path.name)
    (path / "tokenizer.json").write_text("{}")
    (path / "global_step1" / "rank0.pt").write_text(f"part of {step}")
    for unused in ("training_args.bin", "README.md"):  # of transformers and PEFT
        (path / unused).write_text("")
    checkpoints.seal(path, {"step": step, "train_seconds": 2.5 * step})
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Steps of one to three digits, written in no order."""
    for step in (100, 9, 2, 10):
        add(tmp_path, step)
    return tmp_path


def test_steps_are_in_order_and_the_oldest_lose_their_training_state(run: Path) -> None:
    facts = [(c.step, c.meta["step"], c.path.name) for c in checkpoints.find(run)]
    assert facts == [(step, step, f"checkpoint-{step}") for step in (2, 9, 10, 100)]
    names = {"adapter_model.safetensors", "global_step1", "meta.json", "optimizer.pt"}
    assert {path.name for path in (run / "checkpoint-9").iterdir()} == {*names, "tokenizer.json"}
    for keep, resumable in ((None, [2, 9, 10, 100]), (3, [9, 10, 100]), (1, [100])):
        checkpoints.prune(run, keep)
        finished = checkpoints.find(run)
        assert [c.step for c in finished if c.resumable] == resumable
        assert [c.step for c in finished if (c.path / "global_step1").exists()] == resumable
        assert all((c.path / "adapter_model.safetensors").is_file() for c in finished)
        assert [checkpoints.damage(c) for c in finished] == [None] * 4


def truncated(path: Path) -> None:
    os.truncate(path / "adapter_model.safetensors", 11)


def pruned(path: Path, also: str = "optimizer.pt") -> None:
    shutil.rmtree(path / "global_step1")
    (path / "optimizer.pt").unlink()
    (path / also).unlink(missing_ok=True)


SPOILED = {
    "adapter_model.safetensors has 11 bytes, not ": truncated,
    "adapter_model.safetensors is missing": lambda p: (p / "adapter_model.safetensors").unlink(),
    "optimizer.pt was altered": lambda p: (p / "optimizer.pt").write_text("x" * len(p.name)),
    "its training state was removed": pruned,
    "tokenizer.json is missing": lambda p: pruned(p, "tokenizer.json"),  # listed after the state
    "meta.json is missing or unreadable": lambda p: (p / "meta.json").unlink(),
}


@pytest.mark.parametrize("message", SPOILED)
def test_the_highest_intact_step_is_resumed_and_the_others_named(run: Path, message: str) -> None:
    """All of them, or the one that resume= names."""
    assert checkpoints.newest_intact(run)[0].step == 100
    for step in (100, 10):
        SPOILED[message](run / f"checkpoint-{step}")
    start, problems = checkpoints.newest_intact(run)
    assert start.step == 9
    assert len(problems) == 2
    start, (problem,) = checkpoints.newest_intact(run, "checkpoint-10")
    assert start is None
    assert problem.startswith(f"{run / 'checkpoint-10'}: {message}")


def trainer_at(step: int) -> Any:
    """What `write` uses of a trainer."""
    state = SimpleNamespace(global_step=step, save_to_json=lambda path: Path(path).write_text("{}"))
    return SimpleNamespace(state=state, save_state=save)


def save(folder: Path) -> None:
    (folder / "global_step1").mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(b"a" * 5000)
    (folder / "global_step1" / "rank0.pt").write_bytes(b"b" * 300)


def test_every_file_is_on_the_disk_before_the_checkpoint_has_its_name(tmp_path, monkeypatch):
    calls = record(monkeypatch)
    final = checkpoints.write(trainer_at(10), tmp_path, {"seed": 7})
    renamed = calls.index(of("rename", final))
    flushed = set(calls[:renamed])
    for path in (final, *final.rglob("*")):
        assert of("fsync", path) in flushed, path.relative_to(tmp_path)
    assert calls[renamed + 1 :] == [of("fsync", tmp_path)]  # the new name itself
    meta = json.loads((final / "meta.json").read_text())
    assert (meta["step"], meta["seed"]) == (10, 7)
    names = ["adapter_model.safetensors", "global_step1/rank0.pt", "trainer_state.json"]
    assert sorted(meta["files"]) == names
    assert checkpoints.damage(checkpoints.find(tmp_path)[0]) is None


def test_nothing_of_an_interrupted_save_gets_into_the_next_one(tmp_path, capsys):
    left, broken = tmp_path / ".checkpoint-10.tmp", trainer_at(10)

    def full(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").write_text("")
        raise RuntimeError("No space left")

    broken.save_state = full
    with pytest.raises(OSError, match=r"checkpoint-10 could not be written \(No space left\)"):
        checkpoints.write(broken, tmp_path, {})
    assert list(tmp_path.iterdir()) == []
    left.mkdir()
    (left / "from_a_kill").write_text("")
    first = checkpoints.write(trainer_at(10), tmp_path, {})
    assert not (first / "from_a_kill").exists()
    for i in (0, 1):  # what is in the way is kept
        checkpoints.write(trainer_at(10), tmp_path, {"try": i})
        aside = tmp_path / "set-aside" / f"checkpoint-10.{i}"
        assert capsys.readouterr().err == f"{first} moved to {aside}\n"
        assert json.loads((aside / "meta.json").read_text()).get("try") == (0 if i else None)
