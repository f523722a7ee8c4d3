"""A sweep by submitit_local, which takes the keys of submitit_slurm and runs the same job code."""

import pytest

from pods.runs import checkpoints
from pods.runs.folder import read_metrics
from tests import processes

pytest.importorskip("submitit", reason="needs uv sync --extra slurm")


@pytest.mark.slow
def test_a_sweep_runs_every_job_though_one_fails(tmp_path):
    done = processes.run(
        tmp_path, "-m", "hydra/launcher=submitit_local", f"output_dir={tmp_path}",
        "kept_per_prompt=9,4", "run=q-m${kept_per_prompt}", "rollouts_per_prompt=8",
        "micro_batch_size=1", "sampling.max_completion_length=8", "max_steps=2",
        "budget.train_seconds=null",
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "kept_per_prompt=9: cannot keep more than rollouts_per_prompt=8" in done.stderr
    run = tmp_path / "q-m4"  # of the job after the one that fails
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [1, 2]
    assert checkpoints.newest_intact(run)[0].step == 2
    logs = list((tmp_path / ".sweeps").rglob("*_log.out"))
    assert len(logs) == 2  # a job's own output, and nowhere else than in output_dir
    assert not (tmp_path / "multirun").exists()
