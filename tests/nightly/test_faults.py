"""Kills, full disks and broken rewards, done for real to train.py; what is left must be usable.

The reference run has two epochs of three steps, with two prompts and four micro-batches per step.
A killed and resumed run must end with the same bits as this one."""

import json
import os
import shutil
import signal
import time

import pytest
import torch

from pods import files
from pods.runs import checkpoints
from tests import faults, processes
from tests.fake_run import make_run
from tests.figures import rollout_log_file, rollout_record

SETTINGS = [
    *processes.SMALL,
    "task=gsm8k",
    "task.system=''",
    "max_steps=6",
    "checkpoint.every_steps=2",
    "loss.beta=0.04",
    "clock=l40s",
    "optimizer.schedule=constant",
]


def write_questions(folder, count=8):
    (folder / "gsm8k").mkdir(parents=True)
    rows = [{"question": f"{i}+{i + 1}=?", "answer": f"... #### {2 * i + 1}"} for i in range(count)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    for split in ("train", "test"):
        (folder / "gsm8k" / f"{split}.jsonl").write_text(text)


def keys(folder, *overrides):
    data = [f"data_dir={folder / 'data'}", f"output_dir={folder / 'checkpoints'}"]
    return [*SETTINGS, *data, *overrides]


def run(folder, *overrides, **settings):
    return processes.run(folder, *keys(folder, *overrides), **settings)


def killed(folder, *overrides, fault):
    return run(folder, *overrides, fault=fault, code=-signal.SIGKILL)


def failed(folder, *overrides, code=1, fault=None):
    """The last line on stderr of a run that ends with this code."""
    return run(folder, *overrides, fault=fault, code=code).stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    write_questions(folder / "data")
    run(folder)
    return folder / "checkpoints" / "r"


@pytest.fixture
def folder(tmp_path):
    write_questions(tmp_path / "data")
    return tmp_path


def lines(path):
    """The metric lines but for wall time."""
    steady = files.read_lines(path / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k != "wall_seconds"} for line in steady]


def rollouts(path):
    return list(files.read_lines(path / "rollouts.jsonl.gz"))


def assert_same_run(actual, expected):
    """Adapter, optimiser, metric lines and rollouts are those of a run that was never stopped."""
    mine, theirs = actual / "checkpoint-6", expected / "checkpoint-6"
    name = "adapter_model.safetensors"
    assert (mine / name).read_bytes() == (theirs / name).read_bytes()
    states = [torch.load(p / "optimizer.pt", weights_only=True)["state"] for p in (mine, theirs)]
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert lines(actual) == lines(expected)
    assert rollouts(actual) == rollouts(expected)
    assert steps_of(actual) == steps_of(expected)
    assert not list(actual.glob(".checkpoint-*"))


def steps_of(path):
    return [checkpoint.step for checkpoint in checkpoints.find(path)]


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(folder, reference):
    """In a step, with a full disk, in a checkpoint and in the rollout log; then a file is damaged.
    The warm-up of each process leaves no trace either."""
    path, warm = folder / "checkpoints" / "r", "warm_up=true"
    killed(folder, warm, fault=faults.kill_in_step)
    assert steps_of(path) == [2]
    last = failed(folder, warm, fault=faults.disk_full)
    assert "checkpoint-4 could not be written" in last
    assert last.endswith("checkpoint-2")
    killed(folder, warm, fault=faults.kill_in_checkpoint)
    assert steps_of(path) == [2]
    killed(folder, warm, fault=faults.kill_in_rollout_log)
    assert steps_of(path) == [2, 4]
    adapter = path / "checkpoint-4" / "adapter_model.safetensors"
    os.truncate(adapter, adapter.stat().st_size - 100)
    resumed = run(folder, warm)
    assert "checkpoint-4: adapter_model.safetensors has" in resumed.stderr
    assert f"resuming {path / 'checkpoint-2'}" in resumed.stderr
    assert (path / "set-aside" / "checkpoint-4.0").is_dir()
    assert_same_run(path, reference)
    saved = checkpoints.find(path)
    assert [c.resumable for c in saved] == [False, True, True]  # checkpoint.keep is 2
    assert [checkpoints.damage(c) for c in saved] == [None, None, None]
    meta = saved[-1].meta
    assert meta["tokens_generated"] > meta["tokens_trained"] > 0
    assert {"seed", "git_commit", "config_hash", "versions", "train_seconds"} <= meta.keys()
    assert {"load", "log", "checkpoint", "warmup"} <= meta["outside_seconds"].keys()


def test_a_broken_reward_stops_the_run_which_loses_nothing(folder, reference):
    """Also the step since the last regular checkpoint is saved; mended, the run goes on. A built-in
    function keeps its traceback; one of the user's is named (tests/unit/test_scoring.py)."""
    error = run(folder, fault=faults.reward_raises, code=1).stderr
    path = folder / "checkpoints" / "r"
    assert error.splitlines()[-1] == "ZeroDivisionError"
    assert any(line.endswith("checkpoint-3") for line in error.splitlines())
    assert steps_of(path) == [2, 3]
    assert len(lines(path)) == 3
    run(folder)
    shutil.rmtree(path / "checkpoint-3")  # beside those of checkpoint.every_steps
    assert_same_run(path, reference)


def test_an_engine_that_fails_in_an_evaluation_leaves_no_step_without_metrics(folder):
    often = "evaluation.every_seconds=0.01"
    last, path = failed(folder, often, fault=faults.evaluation_fails), folder / "checkpoints" / "r"
    assert "the engine is gone" in last
    assert (steps_of(path), len(lines(path))) == ([2], 3)
    run(folder, often)
    assert [line["step"] for line in lines(path)] == [*range(1, 7)]
    assert all("eval/accuracy" in line for line in lines(path))


HISTORY = """
def alternating(step):
    \"\"\"Keeps other rollouts of a prompt each time it comes, and asks for one that is fresh.\"\"\"
    batch = yield [*step.prompts, *step.fresh(1)], [step.n, step.n, 2]
    first = [len(step.history.get(p, ())) % (step.n - step.m + 1) for p in step.prompts]
    return [p * step.n + start + i for p, start in enumerate(first) for i in range(step.m)]
"""


def test_history_fresh_prompts_and_generations_with_two_updates_resume_exactly(tmp_path):
    """Metrics, rollout log and checkpoints lie between generations; the warm-up leaves no visit."""
    write_questions(tmp_path / "data", count=5)
    (tmp_path / "own.py").write_text(HISTORY)
    own = [f"algorithm={tmp_path / 'own.py'}:alternating", "updates_per_generation=2"]
    own += ["warm_up=true"]
    whole, resumed = (tmp_path / name / "r" for name in ("whole", "killed"))
    killed(tmp_path, *own, f"output_dir={resumed.parent}", fault=faults.kill_in_checkpoint)
    for path in (whole, resumed):
        run(tmp_path, *own, f"output_dir={path.parent}")
    assert_same_run(resumed, whole)
    metrics, records = lines(whole), rollouts(whole)
    assert [line["step"] for line in metrics] == [2, 4, 6] == steps_of(whole)
    assert metrics[-1]["rollouts/generated"] == 3 * (2 * 8 + 2)
    assert [record["step"] for record in records] == [2, 2, 2, 4, 4, 4, 6, 6, 6]
    assert len({str(record["kept"]) for record in records}) > 2  # the history was read
    assert records[2]["question_id"] != records[3]["question_id"]  # goes on after the fresh prompt
    state, other = (
        json.loads((path / "checkpoint-6" / "pods_state.json").read_text())
        for path in (whole, resumed)
    )
    assert state == other
    assert state["fresh_drawn"] == 4  # one was among the prompts of its step already
    assert sum(map(len, state["history"].values())) == 9


def test_a_gradient_that_is_not_finite_stops_before_it_is_saved(folder):
    last = failed(folder, fault=faults.gradient_is_nan)
    assert "grad_norm is nan at step 4" in last
    assert last.endswith("checkpoint-2")
    assert steps_of(folder / "checkpoints" / "r") == [2]


def test_sigterm_saves_a_lock_names_its_holder_and_the_learning_rate_follows_the_clock(folder):
    path = folder / "checkpoints" / "r"
    by_time = [
        "optimizer.schedule=linear",
        "optimizer.schedule_by=seconds",
        "optimizer.warmup_steps=0.5",
        "budget.train_seconds=1000",
        "checkpoint.every_steps=null",
    ]
    first = processes.Process(folder, *keys(folder, *by_time, "max_steps=2000"))
    processes.wait_for(lambda: faults.trained(path), [first])
    in_the_way = f"output_dir={folder / 'checkpoints'}", "task=arithmetic"
    assert f"pid {first.pid} on " in failed(folder / "second", *in_the_way, code=2)
    first.terminate()
    assert first.end() == 128 + signal.SIGTERM
    saved = checkpoints.find(path)[-1]
    assert checkpoints.damage(saved) is None
    assert saved.step == lines(path)[-1]["step"]
    resumed = run(folder, *by_time, f"max_steps={saved.step + 2}")
    assert "scheduler" not in resumed.stderr  # torch warns where it is stepped too early
    metrics = lines(path)
    assert [line["step"] for line in metrics] == list(range(1, saved.step + 3))
    started = [0.0, *(line["train_seconds"] for line in metrics[:-1])]
    rates = [line["learning_rate"] for line in metrics]
    assert rates == [1e-3 * (1000 * seconds / 500_000) for seconds in started]


SILENT = """
import os
import sys

def closes(completions, **_):
    print("a line of a reward")
    for stream in (sys.stdout, sys.stderr):
        stream.close()
    os.closerange(1, 3)
    return [0.0] * len(completions)
"""


@pytest.mark.parametrize("fault", [faults.reader_is_gone, faults.terminal_is_gone, None])
def test_lines_that_cannot_be_printed_end_no_training(fault, folder, reference):
    """With no fault, a reward closes the streams."""
    (folder / "own.py").write_text(SILENT)
    silent = f"rewards.functions.silent={folder / 'own.py'}:closes", "rewards.weights.silent=0"
    run(folder, *(() if fault else silent), fault=fault)
    path = folder / "checkpoints" / "r"
    assert steps_of(path) == [2, 4, 6]
    if fault:
        assert_same_run(path, reference)


FORKING = """
import os

def returns(completions, **_):
    os.fork()
    return [0.0] * len(completions)

def exits(completions, **_):
    child = os.fork()
    if child == 0:
        raise SystemExit(3)
    return [float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 3)] * len(completions)

def forking(step):
    batch = yield step.prompts, step.m
    os.fork()
    return range(len(batch))
"""


@pytest.mark.parametrize("name", ["returns", "exits", "algorithm"])
def test_a_child_that_the_users_code_forks_does_not_train(name, folder):
    (folder / "own.py").write_text(FORKING)
    file = folder / "own.py"
    own = f"algorithm={file}:forking"
    if name != "algorithm":
        own = f"rewards.functions.own={file}:{name}"
    run(folder, own, "max_steps=2")
    path = folder / "checkpoints" / "r"
    assert [line["step"] for line in lines(path)] == [1, 2]
    assert len(rollouts(path)) == 4
    assert steps_of(path) == [2]


@pytest.mark.parametrize(
    ("fault", "code"),
    [(faults.reader_is_gone, 0), (faults.stdout_is_full, 1)],
    ids=["head", "full"],
)
def test_a_result_may_be_read_in_part_but_must_not_be_lost(fault, code, tmp_path):
    run_folder = make_run(tmp_path / "checkpoints", "r", steps=())
    rollout_log_file(run_folder, [rollout_record(1, "q", [0, 1])])
    processes.run(tmp_path, "run=r", script="scripts/inspect_run.py", fault=fault, code=code)


def test_a_warning_saves_the_run_and_a_hang_up_ends_it(folder):
    """SIGUSR2 is a scheduler's: time is short. SIGHUP comes from the terminal and its shell."""
    path = folder / "checkpoints" / "r"
    endless = ["max_steps=200000", "checkpoint.every_steps=null", "clock=measured"]
    process = processes.Process(folder, *keys(folder, *endless), fault=faults.terminal_is_gone)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        before = len(lines(path))
        processes.wait_for(lambda before=before: len(lines(path)) > before, [process])
        saved = steps_of(path)
        os.kill(process.pid, number)
        processes.wait_for(lambda saved=saved: len(steps_of(path)) > len(saved), [process])
    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGHUP, signal.SIGHUP):
        os.kill(process.pid, number)
        time.sleep(2.0 if number == signal.SIGSTOP else 0.0)
    assert process.end() == 128 + signal.SIGHUP
    assert len(steps_of(path)) == 3
    last = checkpoints.find(path)[-1]
    assert last.step == lines(path)[-1]["step"]
    assert last.meta["outside_seconds"]["stopped"] >= 2.0  # no step is as long for it


def test_a_finished_run_changes_nothing_and_goes_on_from_an_earlier_checkpoint(folder, reference):
    path = folder / "checkpoints" / "r"
    shutil.copytree(reference, path)
    assert "6 steps" in run(folder).stdout
    assert not (path / "set-aside").exists()
    run(folder, f"resume={path / 'checkpoint-4'}")
    assert [p.name for p in (path / "set-aside").iterdir()] == ["checkpoint-6.0"]
    assert_same_run(path, reference)


def test_a_run_goes_on_with_other_questions_or_another_file_only_if_it_is_told_to(folder):
    file, data = folder / "own.py", folder / "data" / "gsm8k" / "train.jsonl"
    file.write_text("def own(completions): return [0.0] * len(completions)")
    own = f"rewards.functions.own={file}:own"
    run(folder, own, "max_steps=2")
    data.write_text(data.read_text().replace("#### ", "#### 1"))
    last = failed(folder, own, "max_steps=4", code=2)
    assert "questions of the train split" in last
    assert str(file) not in last
    run(folder, own, "max_steps=4", "resume_changed=true")
    file.write_text(file.read_text().replace("0.0", "1.0"))
    last = failed(folder, own, "max_steps=6", code=2)
    assert f"rewards.functions.own={file}" in last
    assert "questions" not in last  # the digests of its checkpoint are those of now


@pytest.mark.parametrize("budget", ["train_seconds", "wall_seconds"])
def test_a_budget_ends_the_run_with_a_checkpoint(folder, budget):
    limits = [f"budget.{budget}=0.5", "max_steps=null", "updates_per_generation=2"]
    run(folder, *limits, "checkpoint.every_steps=null", "checkpoint.every_seconds=0.2")
    path = folder / "checkpoints" / "r"
    metrics = files.read_lines(path / "metrics.jsonl")
    assert [line for line in metrics[:-1] if line[budget] >= 0.5] == []
    if budget == "train_seconds":  # wall time is looked at after the line is written
        assert metrics[-1][budget] >= 0.5
    assert [line["step"] for line in metrics if line["step"] % 2] == []
    first_of = {line["train_seconds"] // 0.2: line["step"] for line in reversed(metrics)}
    first_of.pop(0.0, None)
    assert steps_of(path) == sorted({*first_of.values(), metrics[-1]["step"]})


def test_another_seed_samples_other_completions_of_other_questions(folder, reference):
    one_step = ["max_steps=1", "optimizer.warmup_steps=0"]
    run(folder, "seed=1", *one_step, "checkpoint.every_steps=null")
    mine, other = rollouts(folder / "checkpoints" / "r"), rollouts(reference)[:2]
    for column in ("completions", "question_id"):
        assert [record[column] for record in mine] != [record[column] for record in other]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("train.py", [*processes.SMALL, "max_steps=1", "optimizer.warmup_steps=0"]),
        ("scripts/report.py", ["run=r"]),
        ("scripts/export.py", ["run=r"]),
        ("scripts/export.py", ["run=r", "merge=false"]),
        ("evaluate_run.py", ["run=r", "repeats=1", "questions=2", "max_tokens=2"]),
    ],
    ids=["train", "report", "export", "export an adapter", "evaluate"],
)
def test_a_full_disk_is_one_line_in_every_command(tmp_path, script, arguments):
    """The kernel refuses to write more than a page into a file."""
    if script != "train.py":
        run_folder = make_run(tmp_path / "checkpoints", "r", steps=(1,))
        (run_folder / "metrics.jsonl").write_text('{"step": 1, "train_seconds": 1.0, "entropy": 1}')
    process = processes.Process(tmp_path, *arguments, script=script, fault=faults.disk_full_at_once)
    assert process.end() in (1, 2)
    assert "Traceback" not in process.stderr
    assert "File too large" in process.stderr.splitlines()[-1]
