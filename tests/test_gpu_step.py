"""The GPU benchmark without a GPU: it skips itself, and a tiny shape runs through train.py."""

import pytest
import torch

from benchmarks.gpu_step import GPU, OVERRIDES, Arm, row, write_random_model
from pods.policy import load_tokenizer
from tests.configs import compose


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_it_says_so(run_command):
    done = run_command("benchmarks/gpu_step.py")
    assert done.returncode == 3
    assert done.stderr.startswith("skipped: no CUDA device")


def test_the_tiny_shape_gives_a_table(run_command):
    done = run_command("benchmarks/gpu_step.py", "--cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    table = [row.split(" | ") for row in done.stdout.splitlines() if row.startswith("|")]
    assert [row[0].strip("| ") for row in table] == [
        "arm", "---", "GRPO 4/4", "PODS 16/4", "GRPO-GA 16/16"
    ]  # fmt: skip
    lengths = [float(row[table[0].index("length")]) for row in table[2:]]
    assert all(length > 15 for length in lengths)  # of 16: almost nothing ends by itself


def test_the_random_model_has_a_tokenizer_of_its_size(tmp_path):
    write_random_model(tmp_path, "small")
    tokenizer = load_tokenizer(str(tmp_path))
    assert len(tokenizer) == 4096
    assert tokenizer("1+2=?")["input_ids"] == [4, 13, 5, 15, 16]
    assert tokenizer.unk_token_id not in tokenizer("a1+9-3=?")["input_ids"]


def test_a_row_of_the_table():
    step = {"seconds/generate": 2.0, "seconds/score": 0.0, "seconds/select": 0.0}
    step |= {"seconds/update": 4.0, "all/completion_length_mean": 100.0}
    checked = step | {"seconds/generate": 9.0}  # the guard's forward passes
    steps = [checked | {"engine/logprob_gap": gap} for gap in (0.01, 0.02, 0.01)] + [step] * 2
    cells = row(Arm("PODS", "pods", 64, 16), steps, 100)
    assert cells["tokens/s"] == "3200"  # 64 x 100 in 2 s
    assert cells["engine/logprob_gap"] == "0.02"
    assert cells["peak_memory_gib/update"] == "nan"  # not measured without a device


def test_unsloth_checkpoints_as_in_the_papers_setting():
    """It offloads from 512 tokens (prompt and completion) on."""
    bench = compose(*OVERRIDES, *GPU, "sampling.max_completion_length=256").sampling
    paper = compose("experiment=gsm8k_qwen").sampling
    total = paper.max_prompt_length + paper.max_completion_length
    assert bench.max_prompt_length + bench.max_completion_length == total
