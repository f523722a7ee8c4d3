"""Kills, full disks and broken rewards, done for real to train.py; what is left must be usable.

The reference is one run that nothing happened to. It spans two epochs (three steps each), with two
prompts and four micro-batches per step. A killed and resumed run must end with the same bits.
"""

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pods.runs import checkpoints, ledger
from pods.runs.folder import read_metrics
from tests import faults, processes

SETTINGS = [
    "task=gsm8k", "task.system=''", "run=r", "rollouts_per_prompt=8", "kept_per_prompt=4",
    "micro_batch_size=2", "sampling.max_completion_length=8", "max_steps=6",
    "budget.train_seconds=null", "checkpoint.every_seconds=null", "checkpoint.every_steps=2",
    "loss.beta=0.04", "ledger.texts=all", "prompts_per_step=2",
]  # fmt: skip


def write_questions(folder: Path) -> None:
    (folder / "gsm8k").mkdir(parents=True)
    rows = [{"question": f"{i}+{i + 1}=?", "answer": f"... #### {2 * i + 1}"} for i in range(8)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "gsm8k" / "train.jsonl").write_text(text)


def begin(folder: Path, *overrides: str, fault: Callable | None = None) -> processes.Process:
    data = [f"data_dir={folder / 'data'}", f"output_dir={folder / 'checkpoints'}"]
    return processes.start(folder, *SETTINGS, *data, *overrides, fault=fault)


def run(folder: Path, *overrides: str, fault: Callable | None = None) -> processes.Process:
    return begin(folder, *overrides, fault=fault).wait()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    write_questions(folder / "data")
    done = run(folder)
    assert done.returncode == 0, done.stderr
    return folder / "checkpoints" / "r"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_questions(tmp_path / "data")
    return tmp_path


def steady(line: dict) -> dict:
    return {key: value for key, value in line.items() if "seconds" not in key}


def assert_same_run(actual: Path, expected: Path) -> None:
    """Adapter, optimiser, metric lines and rollouts are those of a run that was never stopped."""
    mine, theirs = actual / "checkpoint-6", expected / "checkpoint-6"
    name = "adapter_model.safetensors"
    assert (mine / name).read_bytes() == (theirs / name).read_bytes()
    states = [torch.load(p / "optimizer.pt", weights_only=True)["state"] for p in (mine, theirs)]
    for key, moments in states[1].items():
        assert all(torch.equal(value, states[0][key][k]) for k, value in moments.items())
    lines = [
        [steady(line) for line in read_metrics(p / "metrics.jsonl")] for p in (actual, expected)
    ]
    assert lines[0] == lines[1]
    records = [list(ledger.read(p / "rollouts.jsonl.gz")) for p in (actual, expected)]
    assert records[0] == records[1]
    assert [c.step for c in checkpoints.find(actual)] == [2, 4, 6]
    assert not list(actual.glob(".checkpoint-*"))


@pytest.mark.parametrize(
    "fault", [faults.kill_in_step, faults.kill_in_checkpoint, faults.kill_in_ledger]
)
def test_a_killed_run_resumes_to_the_same_bits(folder, reference, fault):
    killed = run(folder, fault=fault)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    path = folder / "checkpoints" / "r"
    assert [c.step for c in checkpoints.find(path)] == [2]
    resumed = run(folder)
    assert resumed.returncode == 0, resumed.stderr
    assert "checkpoint-2" in resumed.stderr
    assert_same_run(path, reference)


def test_a_full_disk_stops_the_run_and_the_rest_is_whole(folder, reference):
    stopped = run(folder, fault=faults.disk_full)
    assert stopped.returncode == 1
    last = stopped.stderr.splitlines()[-1]
    assert "checkpoint-4 could not be written" in last
    assert "last checkpoint:" in last
    assert last.endswith("checkpoint-2")
    assert run(folder).returncode == 0
    assert_same_run(folder / "checkpoints" / "r", reference)


def test_a_damaged_checkpoint_is_named_skipped_and_kept(folder, reference):
    path = folder / "checkpoints" / "r"
    assert run(folder, "max_steps=4").returncode == 0
    adapter = path / "checkpoint-4" / "adapter_model.safetensors"
    adapter.write_bytes(adapter.read_bytes()[:-100])
    resumed = run(folder)
    assert resumed.returncode == 0, resumed.stderr
    assert "checkpoint-4: adapter_model.safetensors has" in resumed.stderr
    assert "resuming" in resumed.stderr
    aside = list((path / "set-aside").glob("checkpoint-4.*/adapter_model.safetensors"))
    assert [p.stat().st_size for p in aside] == [adapter.stat().st_size - 100]
    assert_same_run(path, reference)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (faults.reward_raises, "reward function correctness raised ZeroDivision"),
        (faults.reward_is_nan, "reward function tags returned nan for completion"),
        (faults.reward_is_text, "reward function tags returned 'x' for completion"),
        (faults.rule_returns_too_few, "rule max_variance returned 3 indices, not 4"),
    ],
)
def test_a_broken_function_stops_the_run_which_loses_nothing(folder, reference, fault, said):
    """Also what happened since the last regular checkpoint is saved; mended, the run goes on."""
    stopped = run(folder, fault=fault)
    assert stopped.returncode == 1
    last = stopped.stderr.splitlines()[-1]
    path = folder / "checkpoints" / "r"
    saved = checkpoints.find(path)[-1].step
    assert saved == int(last.rpartition("checkpoint-")[2])
    assert said in last
    assert f"step {saved}" in last
    assert saved >= len(read_metrics(path / "metrics.jsonl")) == saved
    if "reward" in said:
        report = json.loads((path / "failed_reward.json").read_text())
        assert said in report["error"]
        assert report["answer"]
        assert "completion" in report
    assert run(folder).returncode == 0
    if saved % 2:  # beside those of checkpoint.every_steps
        shutil.rmtree(path / f"checkpoint-{saved}")
    assert_same_run(path, reference)


HISTORY = """
def alternating(step):
    \"\"\"Keeps other rollouts of a prompt each time it comes, and asks for one that is fresh.\"\"\"
    batch = yield [*step.prompts, *step.fresh(1)], [step.n, step.n, 2]
    first = [len(step.history.get(p, ())) % (step.n - step.m + 1) for p in step.prompts]
    return [p * step.n + start + i for p, start in enumerate(first) for i in range(step.m)]
"""


def test_history_and_fresh_prompts_resume_exactly_and_the_warm_up_leaves_them_alone(folder):
    (folder / "own.py").write_text(HISTORY)
    own = [f"algorithm.name={folder / 'own.py'}:alternating", "backend.warmup=true"]
    paths = []
    for name, fault in (("whole", None), ("killed", faults.kill_in_step)):
        arguments = [*own, f"output_dir={folder / name}"]
        first = run(folder, *arguments, fault=fault)
        if fault:
            assert first.returncode == -signal.SIGKILL
            assert run(folder, *arguments).returncode == 0
        paths.append(folder / name / "r")
    assert_same_run(*reversed(paths))
    records = list(ledger.read(paths[0] / "rollouts.jsonl.gz"))
    visits: Counter[str] = Counter()  # the warm-up leaves none
    for step in (records[i : i + 3] for i in range(0, 18, 3)):
        for record in step[:2]:
            assert record["kept"][0] == visits[record["question_id"]] % 5
        visits.update(record["question_id"] for record in step)
    assert max(visits.values()) > 2
    questions = [record["question_id"] for record in records]
    assert questions[2] != questions[3]  # the next step goes on after the fresh prompt
    states = [json.loads((p / "checkpoint-6" / "pods_state.json").read_text()) for p in paths]
    assert states[0] == states[1]
    assert states[0]["fresh_drawn"] == 6
    assert sum(map(len, states[0]["history"].values())) == 18  # six steps with three prompts


def test_the_learning_rate_is_that_of_the_train_seconds_also_after_a_kill(folder):
    by_time = ["optimizer.schedule=linear", "optimizer.schedule_by=seconds",
               "optimizer.warmup_steps=0.5", "budget.train_seconds=1000"]  # fmt: skip
    assert run(folder, *by_time, fault=faults.kill_in_step).returncode == -signal.SIGKILL
    resumed = run(folder, *by_time)
    assert resumed.returncode == 0, resumed.stderr
    assert "scheduler" not in resumed.stderr  # torch warns where it is stepped too early
    lines = read_metrics(folder / "checkpoints" / "r" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    started = [0.0, *(line["train_seconds"] for line in lines[:-1])]
    rates = [line["learning_rate"] for line in lines]
    assert rates == [1e-3 * (1000 * seconds / 500_000) for seconds in started]
    assert len(set(rates)) == 6


def test_a_generation_with_two_updates_is_one_step_of_a_run(folder):
    """Metrics, ledger and checkpoints lie between generations; a killed run resumes exactly."""
    paths = []
    for name, fault in (("whole", None), ("killed", faults.kill_in_checkpoint)):
        arguments = ["updates_per_generation=2", f"output_dir={folder / name}"]
        first = run(folder, *arguments, fault=fault)
        assert first.returncode == (-signal.SIGKILL if fault else 0), first.stderr
        assert run(folder, *arguments).returncode == 0
        paths.append(folder / name / "r")
    assert_same_run(*reversed(paths))
    lines = read_metrics(paths[0] / "metrics.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert lines[-1]["rollouts/generated"] == 3 * 2 * 8
    records = list(ledger.read(paths[0] / "rollouts.jsonl.gz"))
    assert [record["step"] for record in records] == [1, 1, 3, 3, 5, 5]
    timed = ["updates_per_generation=2", "max_steps=null", "budget.train_seconds=0.5"]
    grid = ["checkpoint.every_steps=null", "checkpoint.every_seconds=0.1", "run=timed"]
    assert run(folder, *timed, *grid).returncode == 0
    saved = [c.step for c in checkpoints.find(folder / "checkpoints" / "timed")]
    assert saved
    assert all(step % 2 == 0 for step in saved)


def test_a_gradient_that_is_not_finite_stops_before_it_is_saved(folder):
    stopped = run(folder, fault=faults.gradient_is_nan)
    assert stopped.returncode == 1
    last = stopped.stderr.splitlines()[-1]
    assert "grad_norm is nan at step 4" in last
    assert last.endswith("checkpoint-2")
    assert [c.step for c in checkpoints.find(folder / "checkpoints" / "r")] == [2]


def wait_for_a_step(path: Path, process: processes.Process) -> None:
    deadline = time.monotonic() + 500
    while not (path / "metrics.jsonl").is_file() or not read_metrics(path / "metrics.jsonl"):
        assert not process.poll(), process.stderr
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_sigterm_saves_a_lock_names_its_holder_and_the_run_goes_on(folder):
    path = folder / "checkpoints" / "r"
    first = begin(folder, "max_steps=100000", "checkpoint.every_steps=null")
    wait_for_a_step(path, first)
    second = run(folder / "second", f"output_dir={folder / 'checkpoints'}", "task=arithmetic")
    assert second.returncode == 2
    assert f"pid {first.pid} on " in second.stderr
    assert "run=<another name>" in second.stderr
    os.kill(first.pid, signal.SIGTERM)
    first.wait()
    assert first.returncode == 128 + signal.SIGTERM
    assert "run again to resume" in first.stderr
    saved = checkpoints.find(path)[-1]
    assert checkpoints.damage(saved) is None
    assert saved.step == read_metrics(path / "metrics.jsonl")[-1]["step"]
    assert saved.meta["train_seconds"] > 0


def test_resume_rules(folder):
    path = folder / "checkpoints" / "r"
    assert run(folder, "max_steps=4").returncode == 0
    never = run(folder, "resume=never")
    assert never.returncode == 2
    assert "resume=never" in never.stderr
    changed = run(folder, "optimizer.learning_rate=0.5", "seed=3")
    assert changed.returncode == 2
    assert "optimizer.learning_rate (0.001 -> 0.5), seed (0 -> 3)" in changed.stderr
    finished = run(folder, "max_steps=4")
    assert finished.returncode == 0
    assert "4 steps" in finished.stdout
    back = run(folder, f"resume={path / 'checkpoint-2'}", "max_steps=4")
    assert back.returncode == 0, back.stderr
    assert [c.step for c in checkpoints.find(path)] == [2, 4]
    seconds = [line["train_seconds"] for line in read_metrics(path / "metrics.jsonl")]
    assert seconds == sorted(seconds)
    assert len(seconds) == 4
    assert [p.name for p in (path / "set-aside").iterdir()] == ["checkpoint-4.0"]


def test_a_warm_up_is_reported_apart_and_leaves_no_trace(folder, reference):
    assert run(folder, "backend.warmup=true").returncode == 0
    path = folder / "checkpoints" / "r"
    assert_same_run(path, reference)
    outside = [checkpoints.find(p)[-1].meta["outside_seconds"] for p in (path, reference)]
    assert outside[0]["warmup"] > 0
    assert "warmup" not in outside[1]
    assert {"load", "log", "checkpoint"} <= outside[0].keys()


def test_another_seed_is_another_run(folder, reference):
    assert run(folder, "seed=1", "max_steps=2").returncode == 0
    path = folder / "checkpoints" / "r"
    first = [next(ledger.read(p / "rollouts.jsonl.gz")) for p in (path, reference)]
    assert first[0]["completions"] != first[1]["completions"]  # sampling
    orders = [
        [r["question_id"] for r in ledger.read(p / "rollouts.jsonl.gz")][:4]
        for p in (path, reference)
    ]
    assert orders[0] != orders[1]  # data order
    tensors = [
        load_file(p / "checkpoint-2" / "adapter_model.safetensors") for p in (path, reference)
    ]
    assert all(not torch.equal(tensors[0][k], tensors[1][k]) for k in tensors[0])  # LoRA init


@pytest.mark.parametrize("budget", ["train_seconds", "wall_seconds"])
def test_a_budget_ends_the_run_with_a_checkpoint(folder, budget):
    limits = [f"budget.{budget}=0.5", "max_steps=null", "checkpoint.every_steps=null"]
    done = run(folder, *limits, "checkpoint.every_seconds=0.2")
    assert done.returncode == 0, done.stderr
    path = folder / "checkpoints" / "r"
    lines = read_metrics(path / "metrics.jsonl")
    saved = checkpoints.find(path)
    assert saved[-1].step == lines[-1]["step"]
    assert lines[-1][budget] >= 0.5
    assert all(line[budget] < 0.5 for line in lines[:-1])
    marks = {line["step"]: line["train_seconds"] // 0.2 for line in lines}
    crossed = [step for step in marks if marks[step] > marks.get(step - 1, 0)]
    assert [c.step for c in saved] == sorted({*crossed, lines[-1]["step"]})


def test_old_training_state_is_pruned_and_adapters_stay(reference):
    found = checkpoints.find(reference)
    assert [c.step for c in found] == [2, 4, 6]
    assert [c.resumable for c in found] == [False, True, True]  # checkpoint.keep is 2
    assert [checkpoints.damage(c) for c in found] == [None, None, None]
    meta = found[-1].meta
    assert meta["tokens_generated"] > meta["tokens_trained"] > 0
    assert meta["rollouts_generated"] == 6 * 2 * 8
    assert {"seed", "git_commit", "config_hash", "versions", "train_seconds"} <= meta.keys()


@pytest.mark.parametrize("where", ["a file", "a file system that is read-only"])
def test_an_output_folder_that_cannot_be_written_is_said_at_once(folder, where):
    output = Path("/proc/checkpoints") if where != "a file" else folder / "checkpoints"
    if where == "a file":
        output.write_text("a file where a folder should be")
    done = processes.run(folder, *SETTINGS, f"data_dir={folder / 'data'}", f"output_dir={output}")
    assert done.returncode == 2, done.stderr
    assert "output_dir=" in done.stderr
    assert "choose another output_dir" in done.stderr
