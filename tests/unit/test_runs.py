"""A run's folder: a resumed run keeps its first provenance and repeats only later steps."""

import json
import os
import socket
import subprocess
from itertools import count
from pathlib import Path

import pytest
import torch

from pods import files, ranks
from pods.config.command import load_config
from pods.config.errors import RunFailed, UserError
from pods.runs import checkpoints, rollout_log
from pods.runs import folder as runs
from tests.configs import compose
from tests.conftest import ROOT
from tests.fake_run import edit_json
from tests.steps import step_of
from tests.unit.test_checkpoints import add, truncated

STEPS = (9, 10, 100)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run with a metric line, a rollout record and a checkpoint at each of STEPS."""
    commits = count(1)
    monkeypatch.setattr(runs, "provenance", lambda: {"git_commit": f"commit-{next(commits)}"})
    folder = folder_of(tmp_path)
    folder.begin(None)
    for path in (folder.metrics, folder.evaluations):
        lines = [json.dumps({"step": step, "train_seconds": step / 10}) for step in STEPS]
        path.write_text("\n".join([*lines, '{"st']))
    for step in STEPS:
        record = step_of({"a": [0.0, 1.0]}, [1], number=step - 1)
        rollout_log.append(folder.rollout_log, step, record, "none")
        add(folder.path, step, seconds_before_step=step / 100)
    return folder


def folder_of(output_dir: Path, *overrides: str) -> runs.RunFolder:
    return runs.RunFolder(compose("run=r", f"output_dir={output_dir}", *overrides))


def test_a_new_run_has_its_config_and_its_origin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no clone
    folder = folder_of(tmp_path)
    folder.begin(None)
    assert load_config(folder.saved_config) == folder.config
    assert sorted(path.name for path in folder.path.iterdir()) == [".hydra", "meta.json"]
    meta = json.loads(folder.meta.read_text())
    clone = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    assert (meta["git_commit"] or "").partition("-dirty")[0] == clone.stdout[:12]
    assert meta["config_hash"] == runs.config_hash(folder.config)
    assert meta.keys() >= {"python", "host", "cpu_count", "gpu"}
    assert torch.__version__.startswith(meta["versions"]["torch"])
    packages = {"torch", "transformers", "trl", "peft", "accelerate", "datasets"}
    assert packages <= meta["versions"].keys()


def test_without_git_a_run_has_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert runs.provenance()["git_commit"] is None


def test_a_run_is_held_by_one_training(tmp_path):
    owner = f"pid {os.getpid()} on {socket.gethostname()}"
    lock = tmp_path / "r" / ".lock"
    with folder_of(tmp_path):
        assert lock.read_text() == owner
        with pytest.raises(UserError, match=f"^run=r: {owner} is training"), folder_of(tmp_path):
            pass
        assert lock.read_text() == owner
    assert lock.read_text() == ""
    with folder_of(tmp_path):
        assert lock.read_text() == owner


def test_a_lock_whose_file_was_removed_is_taken_again_or_lost_to_another_training(tmp_path):
    lock = tmp_path / "r" / ".lock"
    with folder_of(tmp_path) as first:
        first.keep_lock()
        lock.unlink()
        first.keep_lock()
        with pytest.raises(UserError, match="is training in"), folder_of(tmp_path):
            pass
        lock.unlink()
        with folder_of(tmp_path), pytest.raises(RunFailed, match="is training in"):
            first.keep_lock()


@pytest.mark.parametrize("start", STEPS)
def test_a_resumed_run_keeps_its_origin_and_forgets_later_steps(folder, tmp_path, start):
    origin = folder.meta.read_text()
    (folder.path / ".meta.json.1.tmp").write_text("half")
    (folder.path / ".checkpoint-11.tmp").mkdir()
    (chosen,) = checkpoints.find(folder.path, f"checkpoint-{start}")
    folder_of(tmp_path, "max_steps=1000").begin(chosen)
    assert folder.meta.read_text() == origin
    assert json.loads(origin)["git_commit"] == "commit-1"
    assert "\nmax_steps: 1000\n" in folder.saved_config.read_text()  # curves compare by it
    steps = [step for step in STEPS if step <= start]
    for path in (folder.metrics, folder.evaluations, folder.rollout_log):
        assert [line["step"] for line in files.read_lines(path)] == steps
    for path in (folder.metrics, folder.evaluations):  # whole lines
        assert path.read_text().endswith("}\n")
    assert [c.step for c in checkpoints.find(folder.path)] == steps
    assert list(folder.path.glob(".*.tmp")) == []


def test_lost_facts_are_those_of_the_checkpoint_again(folder, tmp_path):
    edit_json(folder.path / "checkpoint-100" / "meta.json", git_commit="commit-of-100")
    (start,) = checkpoints.find(folder.path, "checkpoint-100")
    folder.meta.write_text('{"seed"')
    folder_of(tmp_path).begin(start)
    assert json.loads(folder.meta.read_text())["git_commit"] == "commit-of-100"


BY_STEPS = "optimizer.schedule_by=seconds max_steps="  # the schedule stays as in the run


@pytest.mark.parametrize(
    ("overrides", "key"),
    [(f"{BY_STEPS}99", "max_steps=99"), ("budget.train_seconds=1", "budget.train_seconds=1")],
    ids=["fewer steps", "a smaller budget"],
)
def test_a_run_never_stands_in_for_a_shorter_one(folder, tmp_path, overrides, key):
    with pytest.raises(UserError, match=f"checkpoint-100 has more .* than {key};"):
        folder_of(tmp_path, *overrides.split()).find_start()


@pytest.mark.parametrize(
    "overrides",
    [f"{BY_STEPS}100", "budget.train_seconds=1.01", f"{BY_STEPS}99 resume=r/checkpoint-10"],
    ids=["as many steps", "the last step began in time", "an earlier checkpoint"],
)
def test_a_run_that_would_have_come_as_far_goes_on(folder, tmp_path, monkeypatch, overrides):
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path, *overrides.split()).find_start()


def test_a_folder_that_gives_no_lock_is_one_line(tmp_path):
    (tmp_path / "r" / ".lock").mkdir(parents=True)  # as a file system without locks refuses
    with pytest.raises(UserError, match=r"^output_dir=.*no lock"), folder_of(tmp_path):
        pass


def test_a_damaged_checkpoint_that_is_named_is_refused_and_by_auto_skipped(
    folder, tmp_path, capsys
):
    path = folder.path / "checkpoint-100"
    named, auto = folder_of(tmp_path, f"resume={path}"), folder_of(tmp_path)
    assert named.find_start().step == 100
    truncated(path)
    with pytest.raises(UserError, match=f"^resume={path}: {path}: adapter_model.safetensors has"):
        named.find_start()
    assert auto.find_start().step == 10
    assert f"{path}: adapter_model.safetensors has" in capsys.readouterr().err


@pytest.mark.parametrize("resume", ["auto", "never", "{}/../other/checkpoint-3"])
def test_a_run_without_an_intact_checkpoint_is_refused(folder, tmp_path, resume):
    for checkpoint in checkpoints.find(folder.path):
        truncated(checkpoint.path)
    add(tmp_path / "other", 3)
    key = f"resume={resume.format(folder.path)}"
    with pytest.raises(UserError, match=f"^{key}: "):
        folder_of(tmp_path, key).find_start()


def test_a_new_run_has_no_start(tmp_path):
    assert folder_of(tmp_path).find_start() is None
    assert folder_of(tmp_path, "resume=never").find_start() is None


def test_a_checkpoint_of_another_number_of_processes_is_refused_if_deepspeed_divided_it(
    folder, tmp_path
):
    checkpoint = folder.path / "checkpoint-100"
    edit_json(checkpoint / "meta.json", ranks=2)
    assert folder_of(tmp_path).find_start().step == 100
    (checkpoint / "latest").write_text("global_step100")
    with pytest.raises(UserError, match=r"each of the 2 processes .*, and this run has 1; launch"):
        folder_of(tmp_path).find_start()


def renamed(path: Path) -> None:
    path.write_text(path.read_text().replace("run: r\n", "run: before\n"))


@pytest.mark.parametrize(
    ("spoil", "overrides", "line"),
    [
        (Path.unlink, "", "run=r: {path} is missing; set run=<another name>"),
        (
            renamed,
            "",
            "run=r was started with another config: run (before -> r); restore these keys, or set "
            "run=<another name>",
        ),
        (
            Path.touch,
            "seed=1 trl.vllm_importance_sampling_correction=true max_sequences=8",
            "run=r was started with another config: seed (0 -> 1), "
            "trl.vllm_importance_sampling_correction (False -> True); restore these keys, "
            "or set run=<another name>",
        ),
    ],
    ids=["missing", "renamed", "other keys"],
)
def test_a_saved_config_that_is_not_of_this_run_is_refused(
    folder, tmp_path, spoil, overrides, line
):
    spoil(folder.saved_config)
    with pytest.raises(UserError) as error:
        folder_of(tmp_path, *overrides.split()).find_start()
    assert str(error.value) == line.format(path=folder.saved_config)


def test_keys_that_may_change_are_not_refused(folder, tmp_path, capsys):
    folder_of(tmp_path, "max_sequences=8", "engine=trl", "checkpoint.keep=7").find_start()
    line = capsys.readouterr().err.splitlines()[0]
    assert line == f"resuming {folder.path / 'checkpoint-100'}"


def test_a_resume_names_a_missing_file(folder, tmp_path, capsys):
    folder.metrics.unlink()
    (start,) = checkpoints.find(folder.path, "checkpoint-100")
    folder_of(tmp_path).begin(start)
    said = capsys.readouterr().err
    assert f"{folder.metrics}: is missing; the new file starts after step 100\n" in said
    assert str(folder.rollout_log) not in said


def test_a_resume_names_another_vllm(folder, capsys, monkeypatch):
    edit_json(folder.meta, versions={"vllm": "0.28.0"})
    monkeypatch.setattr(runs.metadata, "version", lambda _: "0.33.0")
    folder_of(folder.path.parent).find_start()
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("vllm 0.28.0 -> 0.33.0: ") for line in lines)


@pytest.mark.parametrize("key", ["output_dir", "data_dir", "resume", "model.path", "seed"])
def test_a_machine_may_have_paths_of_its_own_but_no_other_keys(tmp_path, monkeypatch, key):
    """But for the model, whose weights are not compared."""
    shared, mounted = tmp_path / "shared", tmp_path / "mounted"
    shared.mkdir()
    mounted.symlink_to(ROOT / "pods" / "tiny_policy" if key == "model.path" else shared)
    first = folder_of(shared)
    second = folder_of(shared, f"{key}={7 if key == 'seed' else mounted}")
    with first:
        sent = []
        monkeypatch.setattr(ranks, "gather", lambda values: sent.append(values) or values)
        second.refuse_unshared(None)
        monkeypatch.setattr(ranks, "gather", lambda values: values + sent.pop(0))
        if key in ("model.path", "seed"):
            with pytest.raises(UserError, match=rf"rank 1.* has other keys than rank 0: {key} \("):
                first.refuse_unshared(None)
        else:
            first.refuse_unshared(None)
            assert not sent  # it compared both
