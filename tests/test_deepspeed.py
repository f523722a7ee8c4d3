"""DeepSpeed's ZeRO as config/accelerate starts it, with two real processes and no GPU.

UV_PROJECT_ENVIRONMENT=.venv-deepspeed uv sync --locked --extra distributed     # once
uv run pytest tests/test_deepspeed.py
"""

import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pods.runs import checkpoints, ledger
from pods.runs.folder import read_metrics
from tests import processes
from tests.conftest import ROOT
from tests.two_ranks import fixed_rollouts

SETTINGS = [
    "run=r", "lora.rank=null", "lora.alpha=1", "rollouts_per_prompt=8", "kept_per_prompt=4",
    "micro_batch_size=2", "budget.train_seconds=null", "checkpoint.every_seconds=null",
    "checkpoint.every_steps=1", "checkpoint.keep=1", "ledger.texts=all",
]  # fmt: skip
# Stage of ZeRO -> settings. AdamW divides by the gradient's size, which makes rounding noise as
# large as a learning rate; with epsilon 1 it divides by 1.
UPDATES = {
    2: ["prompts_per_step=1", "optimizer.name=sgd", "optimizer.learning_rate=1"],
    3: ["prompts_per_step=2", "optimizer.learning_rate=0.1", "trl={adam_epsilon: 1.0}",
        "loss.beta=0.04"],
}  # fmt: skip


def run(folder: Path, stage: int, script: str, *overrides: str) -> subprocess.CompletedProcess:
    """tests/deepspeed_ranks.py in the environment that has DeepSpeed."""
    path = Path(
        os.environ.get("PODS_DEEPSPEED_PYTHON", ROOT / ".venv-deepspeed" / "bin" / "python")
    )
    if not path.is_file():
        pytest.skip(f"no DeepSpeed at {path}; see the top of this file, or PODS_DEEPSPEED_PYTHON")
    config = ROOT / "config" / "accelerate" / f"zero{stage}.yaml"
    # torch waits for ever for the lock that a killed build has left in the folder of all users.
    extensions = os.environ | {"TORCH_EXTENSIONS_DIR": str(folder.parent / "extensions")}
    return subprocess.run(
        [path, "-m", "tests.deepspeed_ranks", config, folder, script, *overrides],
        cwd=ROOT, env=extensions, capture_output=True, text=True, timeout=540,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "steps"),
    [(2, [2]), (3, [1, 2])],  # a second run goes on from DeepSpeed's own state
)
def test_two_processes_with_deepspeed_make_the_update_of_one(tmp_path, stage, steps):
    one, two = tmp_path / "one", tmp_path / "two"
    settings = [*SETTINGS, *UPDATES[stage]]
    runs = [[*settings, f"output_dir={two}", f"max_steps={count}", "--"] for count in steps]
    done = run(two, stage, "train.py", *itertools.chain(*runs))
    assert done.returncode == 0, done.stderr[-3000:]
    said = (two / "rank0" / "stderr").read_text()
    assert "is deprecated" not in said
    alone = processes.run(one, *settings, f"output_dir={one}", "max_steps=2", fault=fixed_rollouts)
    assert alone.returncode == 0, alone.stderr
    records = [list(ledger.read(p / "r" / "rollouts.jsonl.gz")) for p in (one, two)]
    assert records[0] == records[1]
    start = load_file(ROOT / "pods" / "tiny_policy" / "model.safetensors")
    for step in (1, 2):
        weights = [
            load_file(p / "r" / f"checkpoint-{step}" / "model.safetensors") for p in (one, two)
        ]
        for name, value in weights[0].items():
            torch.testing.assert_close(weights[1][name], value, atol=1e-5, rtol=0)
        assert max((v - start[name]).abs().max() for name, v in weights[0].items()) > 4e-5
        start = weights[0]
    norms = [[m["grad_norm"] for m in read_metrics(p / "r" / "metrics.jsonl")] for p in (one, two)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)
    saved = checkpoints.find(two / "r")
    assert [checkpoints.damage(c) for c in saved] == [None] * 2
    assert [c.resumable for c in saved] == [False, True]
    kept = {path.name for path in saved[0].path.iterdir()}
    assert not kept & {"latest", "global_step1", "zero_to_fp32.py", "zero_to_torch.py"}


@pytest.mark.parametrize(("experiment", "stage"), [("gsm8k_h100", 2), ("gsm8k_a100", 3)])
def test_a_trial_of_the_settings_e_and_f(tmp_path, experiment, stage):
    (tmp_path / "gsm8k").mkdir()
    for split in ("train", "test"):
        rows = [{"question": f"{i}+{i}=?", "answer": f"... #### {2 * i}"} for i in range(20)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "gsm8k" / f"{split}.jsonl").write_text(text)
    done = run(
        tmp_path, stage, "train.py", "trial=true", f"output_dir={tmp_path / 'checkpoints'}",
        f"experiment={experiment}", "algorithm=pods", "model=tiny", f"data_dir={tmp_path}",
        "task.system=''", "task.validation_size=4",
        "rollouts_per_prompt=16", "kept_per_prompt=4", "sampling.max_completion_length=16",
        "evaluation.every_seconds=0.001", "rewards.workers=1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [(tmp_path / f"rank{rank}" / "stdout").read_text() for rank in (0, 1)]
    assert "".join(said).count("tokens, 0 of them BOS") == 1  # one process speaks
    assert "in 1800 s of training" in said[0]
    assert not (tmp_path / "checkpoints").exists()
