"""The doctor: what it counts against known facts, what it calls a failure, and the real command."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from pods import doctor
from pods.config.errors import UserError
from tests import processes
from tests.configs import compose
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("experiment", "billions", "adapter"),
    [  # from the models' cards; the models themselves are not on this machine
        ("gsm8k_qwen", 3.09, 119_734_272),
        ("gsm8k_llama", 3.21, 97_255_424),
        ("gsm8k_a100", 7.62, 0),
    ],
)
def test_weights_are_those_of_the_published_models(experiment, billions, adapter):
    parameters, adapted = doctor.weights(compose(f"experiment={experiment}"))
    assert parameters / 1e9 == pytest.approx(billions, abs=0.005)
    assert adapted == adapter  # rank 64 on the seven projections; 0: every parameter is trained


def test_weights_of_a_model_on_this_machine_and_of_an_unknown_one():
    # 3 layers of hidden size 128; per rank: in + out features of the seven projections
    assert doctor.weights(compose("lora.rank=8")) == (457_600, 49_152)
    with pytest.raises(UserError, match=r"model.path=./absent: cannot be read, .*tiny9.json"):
        doctor.weights(compose("model.path=./absent", "model.name=tiny9"))


def test_versions_are_compared_with_the_lock(tmp_path: Path):
    lock = tmp_path / "uv.lock"
    assert doctor.versions(lock)[0] == doctor.WARN
    lock.write_text('[[package]]\nname = "torch"\nversion = "1.0.0"\n')
    verdict, seen = doctor.versions(lock)
    assert verdict == doctor.FAIL
    assert "torch" in seen
    assert doctor.versions(doctor.ROOT / "uv.lock")[0] == doctor.OK


def test_a_disk_that_is_too_small_is_found(monkeypatch, tmp_path: Path):
    config = compose("experiment=gsm8k_qwen", f"output_dir={tmp_path / 'new' / 'folder'}")
    assert doctor.disk(config)[0] == doctor.OK
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage)
    verdict, seen = doctor.disk(config)
    assert verdict == doctor.FAIL
    assert "13 checkpoints" in seen


OWN_TASK = ["task=own", "task.source=q.jsonl", "task.question=q", "task.answer=a"]


@pytest.mark.parametrize("version", ["v1", "v1-correctness", "v2", "strict"])
@pytest.mark.parametrize(
    ("overrides", "answer", "kind"),
    [
        (["task=gsm8k"], "18", "math"),
        (["task=chemistry"], "B", "choice"),
        (OWN_TASK, "18", "math"),
        ([*OWN_TASK, "task.kind=choice"], "B", "choice"),
    ],
)
def test_a_right_completion_earns_more_in_every_version(version, overrides, answer, kind):
    config = compose("experiment=gsm8k_qwen", f"rewards={version}", *overrides)
    assert doctor.reward(config, {"answer": answer, "kind": kind})[0] == doctor.OK


def test_rewards_that_cannot_tell_right_from_wrong_are_found():
    config = compose("experiment=gsm8k_qwen", "rewards=v2", "rewards.weights.correctness=0")
    assert doctor.reward(config, {"answer": "18", "kind": "math"})[0] == doctor.FAIL


def test_the_projection_leaves_the_first_step_out():
    config = compose("experiment=quickstart", "rollouts_per_prompt=64")  # 60 s of training
    step = {"seconds/generate": 1.0, "seconds/score": 0.5, "seconds/select": 0.0}
    steps = [step | {"seconds/update": seconds} for seconds in (100.0, 0.5, 0.5)]
    steps[0]["engine/logprob_gap"] = 0.0123
    for step, gib in zip(steps, (7.5, 9.25, 8.0), strict=True):
        step["peak_memory_gib/update"] = gib
    steps[0]["peak_memory_gib/warmup_update"] = 12.5
    seen = doctor.describe(config, steps)
    assert "peak_memory_gib/warmup_update 12.5" in seen
    assert "about 30 steps in 60 s" in seen
    assert "engine/logprob_gap 0.0123; peak_memory_gib/update 9.25" in seen
    assert "u/g = 2: choosing rollouts should pay where less than 25% or more than 75%" in seen


def test_a_failing_trial_is_reported_with_its_last_line():
    with pytest.raises(UserError, match=r"code 2: .*kept_per_prompt=128"):
        doctor.trial(compose(), ["kept_per_prompt=128", "backend.warmup=false"])


def test_the_command_on_the_quickstart_with_relative_paths(run_command, tmp_path: Path):
    paths = ["output_dir=runs/here", "model.path=models/policy"]  # relative to the working folder
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "policy").symlink_to(ROOT / "pods" / "tiny_policy")
    done = run_command("scripts/doctor.py", "experiment=quickstart", *paths)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "steps in 60 s" in " ".join(done.stdout.split())
    assert "FAIL" not in done.stdout


def test_a_doctor_that_is_stopped_shows_its_report_and_leaves_nothing(tmp_path: Path):
    """As the launcher stops the others when one process fails."""
    work = tmp_path / "work"
    work.mkdir()
    doctor = processes.start(
        tmp_path, "experiment=quickstart", script="scripts/doctor.py", cwd=work
    )
    deadline = time.monotonic() + 200
    while not list(work.glob("checkpoints/.doctor-*/trial")):  # the trial has begun
        assert not doctor.poll(), doctor.stderr
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(doctor.pid, signal.SIGTERM)
    seen = " ".join(doctor.wait(60).stdout.split())
    assert doctor.returncode == 1, seen
    assert "trial FAIL" in seen.replace("│", " ").replace("  ", " ").replace("  ", " ")
    assert "stopped by SIGTERM" in seen
    assert list((work / "checkpoints").iterdir()) == []


def test_the_command_says_all_that_would_fail(tmp_path: Path):
    rows = [{"question": f"{i}?", "answer": f"#### {i}"} for i in range(10)]
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    keys = ("experiment=gsm8k_qwen", "data_dir=.", "model.path=./no-such-folder")
    done = processes.run(tmp_path, *keys, script="scripts/doctor.py")
    seen = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no such folder" in seen
    assert "not run: correct the failures above first" in seen
    assert "gsm8k: 8 training questions" in seen  # a fifth is carved for validation


def test_a_wrong_config_is_bad_input(run_command):
    done = run_command("scripts/doctor.py", "kept_per_prompt=65")
    assert done.returncode == 2
    assert done.stderr.startswith("doctor.py: kept_per_prompt=65")
