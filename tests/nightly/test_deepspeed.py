"""DeepSpeed's ZeRO as config/accelerate starts it, with two real processes and no GPU.

UV_PROJECT_ENVIRONMENT=.venv-deepspeed uv sync --locked --extra distributed     # once
uv run pytest tests/nightly/test_deepspeed.py
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from pods import files
from pods.runs import checkpoints
from tests import processes
from tests.conftest import ROOT
from tests.nightly.test_faults import rollouts, write_questions
from tests.two_ranks import ADAM, SGD, differences, fixed_rollouts

SETTINGS = [
    *processes.SMALL,
    "sampling.max_completion_length=48",
    "lora.rank=null",
    "lora.alpha=1",
    "checkpoint.every_steps=1",
    "checkpoint.keep=1",
    "optimizer.schedule=constant",
]
UPDATES = {2: ["prompts_per_step=1", *SGD], 3: ["prompts_per_step=2", *ADAM]}  # by ZeRO's stage


def trial(folder):
    return [
        "trial=true",
        f"output_dir={folder / 'trials'}",
        "experiment=gsm8k_a100",
        "algorithm=pods",
        "model=tiny",
        f"data_dir={folder}",
        "task.system=''",
        "task.validation_size=4",
        "rollouts_per_prompt=16",
        "kept_per_prompt=4",
        "sampling.max_completion_length=16",
        "evaluation.every_seconds=0.001",
    ]


def python():
    return os.environ.get("PODS_DEEPSPEED_PYTHON", ROOT / ".venv-deepspeed" / "bin" / "python")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """zero2/, zero3/ and bfloat16/ with their updates, and trial/, all by one process."""
    if not Path(python()).is_file():
        pytest.skip(f"no DeepSpeed: {python()}; see the top of this file, or PODS_DEEPSPEED_PYTHON")
    folder, runs = tmp_path_factory.mktemp("deepspeed"), []
    write_questions(folder, count=20)
    configs = {stage: str(ROOT / "config" / "accelerate" / f"zero{stage}.yaml") for stage in (2, 3)}
    for stage, steps in ((2, [2]), (3, [1, 2])):  # a second run resumes from DeepSpeed's own state
        two = str(folder / f"zero{stage}")
        update = [*SETTINGS, *UPDATES[stage], f"output_dir={two}"]
        runs += [[configs[stage], two, [*update, f"max_steps={n}"]] for n in steps]
    runs.append([configs[3], str(folder / "trial"), trial(folder)])
    half = str(folder / "bfloat16")
    small = ["model.dtype=bfloat16", "optimizer.learning_rate=1e-5", "max_steps=2"]
    update = [*SETTINGS, *small, "prompts_per_step=2", f"output_dir={half}"]
    runs.append([configs[2], half, update])
    command = [python(), "-m", "tests.nightly.deepspeed_ranks", json.dumps(runs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("stage", [2, 3])
def test_two_processes_with_deepspeed_make_the_update_of_one(folder, tmp_path, stage):
    one, two = tmp_path, folder / f"zero{stage}"
    assert "is deprecated" not in (two / "rank0" / "stderr").read_text()
    settings = [*SETTINGS, *UPDATES[stage], f"output_dir={one}", "max_steps=2"]
    processes.run(one, *settings, fault=fixed_rollouts)
    assert rollouts(one / "r") == rollouts(two / "r")
    start = load_file(ROOT / "pods" / "tiny_policy" / "model.safetensors")
    different, moved = {}, {}
    for step in (1, 2):
        file = f"r/checkpoint-{step}/model.safetensors"
        ours, theirs = load_file(one / file), load_file(two / file)
        different[step] = differences(ours, theirs)
        moved[step] = max((v - start[name]).abs().max().item() for name, v in ours.items())
        start = ours
    assert different == {1: {}, 2: {}}
    assert min(moved.values()) > 4e-5, moved
    norms = [
        [m["grad_norm"] for m in files.read_lines(p / "r" / "metrics.jsonl")] for p in (one, two)
    ]
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)
    saved = checkpoints.find(two / "r")
    assert [checkpoints.damage(c) for c in saved] == [None] * 2
    assert [c.resumable for c in saved] == [False, True]
    kept = {path.name for path in saved[0].path.iterdir()}
    assert not kept & {"latest", "global_step1", "zero_to_fp32.py", "zero_to_torch.py"}


MASTERS = """
import sys, torch
for path in sys.argv[1:]:
    state = torch.load(path, weights_only=False)["optimizer_state_dict"]
    for group in state["single_partition_of_fp32_groups"]:
        print(group.dtype, bool((group != group.bfloat16()).any()))
"""


def test_deepspeed_keeps_float32_masters_of_bfloat16_weights(folder):
    """Two updates of 1e-5 move no bfloat16 number above 5e-3, but they move its master."""
    states = sorted((folder / "bfloat16" / "r" / "checkpoint-2").rglob("*optim_states.pt"))
    assert len(states) == 2  # one a process
    command = [python(), "-c", MASTERS, *map(str, states)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    groups = [line for line in done.stdout.splitlines() if "real_accelerator" not in line]
    assert groups == ["torch.float32 True"] * 4, done.stderr[-3000:]  # two groups a process


def test_a_trial_of_setting_f(folder):
    said = [(folder / "trial" / f"rank{rank}" / "stdout").read_text() for rank in (0, 1)]
    assert "".join(said).count("tokens, 0 of them BOS") == 1  # one process speaks
    assert "in 1800 s of training" in said[0]
    assert not (folder / "trials").exists()
