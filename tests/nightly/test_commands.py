"""train.py: it learns, further overrides, longer runs, sweeps by Hydra and by submitit."""

import os
import re
import signal

import pytest

from pods import files
from pods.runs import checkpoints
from tests import faults, processes
from tests.commands.test_commands import trains_two_steps
from tests.nightly.test_faults import write_questions
from tests.unit.test_tiny_policy import stored_base


def test_the_quickstart_learns(tmp_path):
    """On all test questions: those of a few steps differ too much in how hard they are."""
    keys = ["max_steps=40", "budget.train_seconds=null", "run=r", "clock=l40s"]
    processes.run(tmp_path, *keys, "evaluation.every_seconds=470")
    *lines, last = files.read_lines(tmp_path / "checkpoints" / "r" / "metrics.jsonl")
    assert len(lines) == 39
    assert last["eval/greedy_accuracy"] > stored_base("sums", "test")["greedy"] + 0.05
    assert last["kept/reward_variance"] >= last["all/reward_variance"] - 1e-9
    assert (last["rollouts/generated"], last["rollouts/trained"]) == (40 * 64, 40 * 32)


OVERRIDES = [
    "algorithm=grpo_ga rewards=strict logger=[] optimizer.schedule=cosine optimizer.warmup_steps=1",
    "rule=percentile rewards=v1-correctness task=gsm8k data_dir=data sampling.temperature=0.7 "
    "prompts_per_step=3",
    "rule=random lora.rank=null optimizer.learning_rate=1e-4 checkpoint.every_steps=1 "
    "logger=[console,tensorboard] ledger_texts=first",
]


@pytest.mark.parametrize("overrides", OVERRIDES)
def test_overrides_work(tmp_path, overrides):
    write_questions(tmp_path / "data")
    trains_two_steps(tmp_path, *overrides.split())


def test_a_longer_run_goes_on_at_the_rates_of_its_own_schedule(tmp_path):
    for max_steps in (2, 4):
        keys = [f"max_steps={max_steps}", "optimizer.warmup_steps=0"]
        processes.run(tmp_path, *processes.SMALL, *keys)
    lines = files.read_lines(tmp_path / "checkpoints" / "r" / "metrics.jsonl")
    rates = [line["learning_rate"] for line in lines]
    assert rates == pytest.approx([1e-3, 1e-3 / 2, 1e-3 / 2, 1e-3 / 4])


def test_a_sweep_again_skips_finished_runs_and_resumes_others(tmp_path):
    keys = ["-m", "algorithm=grpo,pods", "seed=1", "max_steps=2", "checkpoint.every_steps=1"]
    keys += ["sampling.max_completion_length=4", "budget.train_seconds=null"]
    first = processes.run(tmp_path, *keys)
    names = sorted(p.name for p in (tmp_path / "checkpoints").glob("quickstart-*"))
    assert [re.sub(r"-[0-9a-f]{8}-", "-<fixed>-", name) for name in names] == [
        "quickstart-<fixed>-grpo-seed1",  # the other keys are the same in all jobs, and long
        "quickstart-<fixed>-pods-seed1",
    ]
    typed = (tmp_path / "checkpoints" / names[0] / ".hydra" / "overrides.yaml").read_text()
    assert "- algorithm=grpo\n- seed=1\n" in typed
    jobs = [line for line in first.stderr.splitlines() if line.startswith("job ")]
    assert jobs[1].startswith(f"job 2: run={names[1]} (")
    lines = first.stdout.splitlines()
    assert "sweep: 2 of 2 jobs done" in lines
    assert first.stdout.count("next: ") == 1, "of the sweep, not of each job"
    sweep = re.fullmatch(r"next: uv run evaluate_run.py run=(checkpoints/sweep-\S+)", lines[-2])[1]
    assert (tmp_path / sweep / "runs.txt").read_text().split() == names
    assert lines[-1] == f"then: uv run scripts/table.py runs={sweep}"
    (tmp_path / "checkpoints" / names[1] / "checkpoint-2" / "meta.json").unlink()  # as by a kill
    again = processes.run(tmp_path, *keys)
    assert [name for name in names if f"{name}: 2 steps" not in again.stdout] == []
    assert f"resuming checkpoints/{names[0]}/checkpoint-2" in again.stderr
    assert f"resuming checkpoints/{names[1]}/checkpoint-1" in again.stderr
    assert [again.stderr.count(f"step {step} ") for step in (1, 2)] == [0, 1]


def test_jobs_of_submitit_end_one_of_them_after_it_was_queued_again(tmp_path):
    """By submitit_local, which takes the keys of submitit_slurm and runs the same job code; then an
    evaluation, a job a run."""
    pytest.importorskip("submitit", reason="needs the dev group")
    launcher, output = "hydra/launcher=submitit_local", f"output_dir={tmp_path}"
    keys = [launcher, output, "run=q-m${kept_per_prompt}", "max_steps=20"]
    sizes = ["kept_per_prompt=2,4", "micro_batch_size=1"]
    process = processes.Process(tmp_path, "-m", *processes.SMALL, *keys, *sizes)
    runs = [tmp_path / "q-m2", tmp_path / "q-m4"]
    processes.wait_for(lambda: faults.trained(runs[0]), [process])
    (pid,) = re.findall(r"pid (\d+)", (runs[0] / ".lock").read_text())
    os.kill(int(pid), signal.SIGUSR2)  # as submitit's controller does before the time limit
    assert process.end() == 0, process.stderr
    assert "sweep: 2 of 2 jobs done\n" in process.stdout
    for run in runs:
        metrics = files.read_lines(run / "metrics.jsonl")
        assert [line["step"] for line in metrics] == [*range(1, 21)]
    saved = [[checkpoint.step for checkpoint in checkpoints.find(run)] for run in runs]
    assert [len(saved[0]), saved[1]] == [2, [20]]
    logs = {path.read_text() for path in (tmp_path / ".sweeps").rglob("*_log.err")}
    assert len(logs) == 2  # a job's own output, and nowhere else than in output_dir
    resumed = f"resuming {runs[0]}/checkpoint-{saved[0][0]}"
    assert [resumed in log for log in logs].count(True) == 1
    assert not (tmp_path / "multirun").exists()

    few = ["checkpoints=last", "questions=4", "repeats=1", "greedy=false", "max_tokens=8"]
    few += [output, f"results_dir={tmp_path / 'results'}"]
    scored = []
    for evaluate in (["-m", "run=q-m2,q-m4", launcher], ["run=[q-m2,q-m4]"]):
        processes.run(tmp_path, *evaluate, *few, script="evaluate_run.py")
        records = (tmp_path / "results").glob("q-*/checkpoint-20/*/repeat-*.jsonl")
        scored.append({path: (path.stat().st_mtime, path.read_text()) for path in records})
    assert [len(text.splitlines()) for _, text in scored[0].values()] == [4, 4]
    assert scored[0] == scored[1]
