"""Checkpoints by number, not by name; damage is found before use; the disk has all before the name.
tests/nightly/test_faults.py has kills and full disks of a whole run."""

import errno
import json
import os
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pods.runs import checkpoints
from tests.unit.test_files import of, record


def trainer_at(step: int) -> Any:
    """What `write` uses of a trainer; the contents name the step."""

    def save(folder: Path) -> None:
        (folder / "global_step1").mkdir(parents=True)
        save_file({"adapter": torch.tensor(step)}, folder / "adapter_model.safetensors")
        torch.save({"step": step}, folder / "optimizer.pt")
        (folder / "global_step1" / "rank0.pt").write_text(f"part of {step}")
        for name in ("tokenizer.json", "training_args.bin", "README.md"):
            (folder / name).write_text("{}")

    def save_to_json(path: str) -> None:
        Path(path).write_text(json.dumps({"global_step": step}))

    state = SimpleNamespace(global_step=step, save_to_json=save_to_json)
    return SimpleNamespace(state=state, save_state=save)


def add(run: Path, step: int, **meta) -> Path:
    return checkpoints.write(trainer_at(step), run, {"seed": 7, **meta})


@pytest.fixture
def run(tmp_path):
    """Steps of one to three digits, written in no order."""
    for step in (100, 9, 2, 10):
        add(tmp_path, step)
    return tmp_path


def test_steps_are_in_order(run):
    facts = [(c.step, c.meta["step"], c.path.name) for c in checkpoints.find(run)]
    assert facts == [(step, step, f"checkpoint-{step}") for step in (2, 9, 10, 100)]


@pytest.mark.parametrize(
    ("keep", "resumable"), [(None, [2, 9, 10, 100]), (3, [9, 10, 100]), (1, [100])]
)
def test_the_oldest_lose_their_training_state(run, keep, resumable):
    checkpoints.prune(run, keep)
    finished = checkpoints.find(run)
    assert [c.step for c in finished if c.resumable] == resumable
    assert [c.step for c in finished if (c.path / "global_step1").exists()] == resumable
    adapters = [c.step for c in finished if (c.path / "adapter_model.safetensors").is_file()]
    assert adapters == [2, 9, 10, 100]
    assert [checkpoints.damage(c) for c in finished] == [None] * 4


def test_random_states_that_an_earlier_version_removed_are_no_damage(run):
    meta = run / "checkpoint-2" / "meta.json"
    content = json.loads(meta.read_text())
    content["files"]["rng_state_1.pth"] = {"bytes": 9, "sha256": "0" * 64}
    meta.write_text(json.dumps(content))
    (checkpoint,) = checkpoints.find(run, "checkpoint-2")
    assert checkpoints.damage(checkpoint) == "rng_state_1.pth is missing"
    checkpoints.prune(run, 1)
    assert checkpoints.damage(checkpoint) is None


def test_deepspeeds_own_state_can_be_resumed(run):
    checkpoints.prune(run, 1)
    (run / "checkpoint-2" / "latest").touch()  # instead of optimizer.pt
    assert checkpoints.find(run, "checkpoint-2")[0].resumable


def truncated(path: Path) -> None:
    os.truncate(path / "adapter_model.safetensors", 11)


def alter(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def pruned(path: Path, also: str = "optimizer.pt") -> None:
    shutil.rmtree(path / "global_step1")
    for name in {"optimizer.pt", also}:
        (path / name).unlink()


SPOILED = {
    "adapter_model.safetensors has 11 bytes, not ": truncated,
    "adapter_model.safetensors is missing": lambda p: (p / "adapter_model.safetensors").unlink(),
    "global_step1/rank0.pt is missing": lambda p: shutil.rmtree(p / "global_step1"),
    "optimizer.pt was altered": lambda p: alter(p / "optimizer.pt"),
    "its training state was removed": pruned,
    "tokenizer.json is missing": lambda p: pruned(p, "tokenizer.json"),  # listed after the state
    "meta.json is missing, unreadable or another's": lambda p: (p / "meta.json").unlink(),
}
FORMS = ["\0", "[]", '{"step": 100, "files": {"a": 3}}', '{"step": 3, "files": {}}']


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_with_a_meta_of_another_form_is_none(run, form):
    (run / "checkpoint-100" / "meta.json").write_text(form)
    start, (problem,) = checkpoints.newest_intact(run)
    assert start.step == 10
    assert problem.endswith("checkpoint-100: meta.json is missing, unreadable or another's")


def test_a_copy_under_another_step_is_none(run):
    shutil.copytree(run / "checkpoint-100", run / "checkpoint-99")
    assert [checkpoint.step for checkpoint in checkpoints.find(run)] == [2, 9, 10, 100]


@pytest.mark.parametrize("message", SPOILED)
def test_the_highest_intact_step_is_resumed_and_the_others_named(run, message):
    """All of them, or the one that resume= names."""
    assert checkpoints.newest_intact(run)[0].step == 100
    for step in (100, 10):
        SPOILED[message](run / f"checkpoint-{step}")
    start, problems = checkpoints.newest_intact(run)
    assert (start.step, len(problems)) == (9, 2)
    start, (problem,) = checkpoints.newest_intact(run, "checkpoint-10")
    assert start is None
    assert problem.startswith(f"{run / 'checkpoint-10'}: {message}")


def test_every_file_is_on_the_disk_before_the_checkpoint_has_its_name(tmp_path, monkeypatch):
    calls = record(monkeypatch)
    final = add(tmp_path, 10)
    renamed = calls.index(of("rename", final))
    flushed = set(calls[:renamed])
    paths = (final, *final.rglob("*"))
    assert {str(path) for path in paths if of("fsync", path) not in flushed} == set()
    assert calls[renamed + 1 :] == [of("fsync", tmp_path)]  # the new name itself
    meta = json.loads((final / "meta.json").read_text())
    assert (meta["step"], meta["seed"]) == (10, 7)
    assert sorted(meta["files"]) == [
        "adapter_model.safetensors",
        "global_step1/rank0.pt",
        "optimizer.pt",
        "tokenizer.json",
        "trainer_state.json",
    ]
    assert not (final / "README.md").exists()
    assert checkpoints.damage(checkpoints.find(tmp_path)[0]) is None


def test_a_full_disk_is_named_when_torch_names_only_a_position(tmp_path):
    """The kernel lets no file grow further, as on a full disk."""
    trainer = trainer_at(10)

    def save(folder):
        folder.mkdir()
        torch.save(torch.zeros(100_000), folder / "optimizer.pt")

    trainer.save_state = save
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="checkpoint-10 could not be written") as error:
            checkpoints.write(trainer, tmp_path, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.strerror(errno.EFBIG) in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_an_interrupted_save_gets_into_the_next_one(tmp_path):
    broken, left = trainer_at(10), tmp_path / ".checkpoint-10.tmp"

    def full(folder):
        folder.mkdir()
        (folder / "half").write_text("")
        raise RuntimeError("No space left")

    broken.save_state = full
    with pytest.raises(OSError, match=r"checkpoint-10 could not be written \(No space left\)"):
        checkpoints.write(broken, tmp_path, {})
    assert list(tmp_path.iterdir()) == []
    left.mkdir()
    (left / "from_a_kill").write_text("")
    assert not (add(tmp_path, 10) / "from_a_kill").exists()


def test_a_checkpoint_that_is_in_the_way_is_kept_aside(tmp_path, capsys):
    first, second, third = (add(tmp_path, 10, number=i) for i in range(3))
    assert first == second == third
    aside = [tmp_path / "set-aside" / f"checkpoint-10.{i}" for i in (0, 1)]
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == [*map(str, aside)]
    metas = [json.loads((path / "meta.json").read_text()) for path in (*aside, third)]
    assert [meta["number"] for meta in metas] == [0, 1, 2]
