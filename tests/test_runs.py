"""A run's folder: a resumed run keeps its first provenance and repeats only later steps."""

import json
import platform
import subprocess
from itertools import count
from pathlib import Path

import pytest
import trl

from pods import files
from pods.config.errors import UserError
from pods.runs import checkpoints, ledger
from pods.runs import folder as runs
from tests.configs import compose
from tests.conftest import ROOT
from tests.steps import step_of
from tests.test_checkpoints import add, truncated

STEPS = (9, 10, 100)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run with a metric line, a ledger record and a checkpoint at each of STEPS."""
    commits = count(1)
    monkeypatch.setattr(runs, "provenance", lambda: {"git_commit": f"commit-{next(commits)}"})
    folder = folder_of(tmp_path)
    folder.begin(None)
    for path in (folder.metrics, folder.evaluations):
        lines = [json.dumps({"step": step, "train_seconds": step / 10}) for step in STEPS]
        path.write_text("\n".join([*lines, '{"st']))
    for step in STEPS:
        ledger.append(folder.ledger, step_of({"a": [0.0, 1.0]}, [1], number=step - 1), "none")
        add(folder.path, step)
    return folder


def folder_of(output_dir: Path, *overrides: str) -> runs.RunFolder:
    return runs.RunFolder(compose("run=r", f"output_dir={output_dir}", *overrides))


@pytest.mark.parametrize("start", STEPS)
def test_a_resumed_run_keeps_its_origin_and_forgets_later_steps(folder, tmp_path, start):
    origin = folder.saved_config.read_text(), folder.meta.read_text()
    (folder.path / ".meta.json.1.tmp").write_text("half")
    (folder.path / ".checkpoint-11.tmp").mkdir()
    (chosen,) = (c for c in checkpoints.find(folder.path) if c.step == start)
    folder_of(tmp_path, "max_steps=1000").begin(chosen)
    assert (folder.saved_config.read_text(), folder.meta.read_text()) == origin
    assert json.loads(origin[1])["git_commit"] == "commit-1"
    assert len(json.loads(origin[1])["config_hash"]) == 12
    steps = [step for step in STEPS if step <= start]
    paths = (folder.metrics, folder.evaluations, folder.ledger)
    lines = {path.name: [line["step"] for line in files.read_lines(path)] for path in paths}
    assert lines == {path.name: steps for path in paths}
    ends = {path.name: path.read_text()[-2:] for path in (folder.metrics, folder.evaluations)}
    assert ends == dict.fromkeys(ends, "}\n")
    assert [c.step for c in checkpoints.find(folder.path)] == steps
    assert list(folder.path.glob(".*.tmp")) == []


def test_lost_facts_are_those_of_the_checkpoint_again(folder, tmp_path, capsys):
    (start,) = checkpoints.find(folder.path, "checkpoint-100")
    meta = json.loads((start.path / "meta.json").read_text()) | {"git_commit": "commit-of-100"}
    (start.path / "meta.json").write_text(json.dumps(meta))
    (start,) = checkpoints.find(folder.path, "checkpoint-100")
    folder.meta.write_text('{"seed"')
    resumed = folder_of(tmp_path)
    resumed.begin(start)
    assert json.loads(folder.meta.read_text())["git_commit"] == "commit-of-100"
    (copy,) = (folder.path / "set-aside").glob("meta.json.*")
    assert copy.read_text() == '{"seed"'
    assert f"{folder.meta}: cannot be read; moved to {copy}" in capsys.readouterr().err


def test_a_resumed_run_names_the_steps_that_its_files_lost(folder, tmp_path, capsys):
    text = folder.metrics.read_text().replace('{"step": 10,', '{"step": 1\0,')
    folder.metrics.write_text(text)
    (start,) = checkpoints.find(folder.path, "checkpoint-100")
    folder_of(tmp_path, "updates_per_generation=5").begin(start)
    said = capsys.readouterr().err
    assert f"{folder.metrics}: cannot be read at line 2; the file is " in said
    assert f"{folder.metrics}: has no record of step 5, 10, 15, 20, 25, 30, 35, 40 and 11" in said
    assert f"{folder.ledger}: has no record of step 1, 6, 11, " in said
    assert "evaluations" not in said
    assert [line["step"] for line in files.read_lines(folder.metrics)] == [9, 100]


BY_STEPS = "optimizer.schedule_by=seconds max_steps="  # the schedule stays as in the run


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (f"{BY_STEPS}99", "has more steps than max_steps=99; set run=<another name>, or max_"),
        ("budget.train_seconds=1", "has more seconds of training than budget.train_seconds=1; "),
    ],
    ids=["fewer steps", "a smaller budget"],
)
def test_a_run_never_stands_in_for_a_shorter_one(folder, tmp_path, overrides, line):
    with pytest.raises(UserError, match=rf"^run=r: \S*checkpoint-100 {line}"):
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
    with (
        pytest.raises(UserError, match=r"^output_dir=.*: no lock .* choose another output_dir"),
        folder_of(tmp_path),
    ):
        pass


def test_a_damaged_checkpoint_that_is_named_is_refused_and_by_auto_skipped(
    folder, tmp_path, capsys
):
    def start(resume):
        return folder_of(tmp_path, f"resume={resume}").find_start().step

    path = folder.path / "checkpoint-100"
    assert start(str(path)) == 100
    truncated(path)
    line = f"^resume={path}: {path}: adapter_model.safetensors has 11 bytes, not 14"
    with pytest.raises(UserError, match=line):
        start(str(path))
    assert start("auto") == 10
    shown = capsys.readouterr().err
    assert "not 14; skipped\n" in shown
    assert f"resuming {folder.path / 'checkpoint-10'}" in shown


@pytest.mark.parametrize(
    ("resume", "line"),
    [
        ("auto", "resume=auto: .* bytes, not .*; set run=<another name>"),
        ("never", "resume=never: .* holds 3 checkpoints"),
        ("other/checkpoint-3", "of another run than run=r; set run=other"),
    ],
    ids=["auto", "never", "another run"],
)
def test_a_run_without_an_intact_checkpoint_is_refused(folder, tmp_path, resume, line):
    for checkpoint in checkpoints.find(folder.path):
        truncated(checkpoint.path)
    add(tmp_path / "other", 3)
    if "/" in resume:
        resume = str(tmp_path / resume)
    with pytest.raises(UserError, match=line):
        folder_of(tmp_path, f"resume={resume}").find_start()


def test_a_checkpoint_of_more_processes_is_refused(folder, tmp_path):
    last = folder.path / "checkpoint-100"
    meta = json.loads((last / "meta.json").read_text())
    (last / "meta.json").write_text(json.dumps(meta | {"ranks": 2}))
    with pytest.raises(UserError) as error:
        folder_of(tmp_path).find_start()
    assert str(error.value) == (
        f"{last} was written by 2 processes, and this run has 1; launch with --num_processes 2, "
        "or set run=<another name>"
    )


def test_a_result_names_its_commit_its_packages_and_its_machine():
    facts = runs.provenance()
    commit = subprocess.getoutput(f"git -C {ROOT} rev-parse --short=12 HEAD")
    if (ROOT / ".git").exists():
        assert facts["git_commit"].removesuffix("-dirty") == commit
    assert facts["python"] == platform.python_version()
    assert facts["versions"]["trl"] == trl.__version__
    assert facts.keys() == {"git_commit", "versions", "python", "host", "cpu_count", "gpu"}
