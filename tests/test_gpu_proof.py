"""The report for GPU owners, without a GPU: it refuses, and a tiny shape goes through it all."""

import json
import multiprocessing

import pytest
import torch

from benchmarks.gpu_proof import CPU, GPU, RANDOM, Model, Proof, ProofConfig, row
from benchmarks.random_model import write_random_model
from pods.config.errors import UserError
from pods.models.policy import load_tokenizer
from tests import processes
from tests.configs import compose


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_it_says_so(run_command, tmp_path):
    done = run_command("benchmarks/gpu_proof.py", f"out={tmp_path / 'proof'}")
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "gpu_proof.py: cpu=false: no CUDA device; cpu=true tries the command on a tiny shape"
    )
    assert not (tmp_path / "proof").exists()


@pytest.mark.slow
def test_a_tiny_shape_gives_a_report(tmp_path):
    keys = (f"out={tmp_path / 'proof'}", "cpu=true", "minutes=0")
    done = processes.run(tmp_path, *keys, script="benchmarks/gpu_proof.py", fault=fork_parts)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = json.loads((tmp_path / "proof" / "report.json").read_text())["parts"]
    assert {name for name, part in found.items() if part["error"] is None} == {
        "random weights", "card", "doctor", "engine transformers, trl", "GRPO 4/4", "PODS 16/4",
        "GRPO-GA 16/16", "planner",
    }  # fmt: skip
    grpo, pods, both = (found[name]["row"] for name in ("GRPO 4/4", "PODS 16/4", "GRPO-GA 16/16"))
    for arm in (grpo, pods, both):
        assert min(arm["generate, s"], arm["update, s"]) > 0
    assert 0 < pods["update, share of matrix rate"] < 1
    assert found["planner"]["costs"]["update"] > 0
    page = (tmp_path / "proof" / "report.html").read_text()
    assert all(f"<td>{name}</td>" in page for name in found)


def fork_parts() -> None:
    """Not spawned, which imports torch and TRL for each part."""
    context = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda _: context


def test_a_failed_part_is_named_and_repeated_alone(tmp_path):
    config = ProofConfig(str(tmp_path), [], True, Model(None), 0.0)
    calls = []

    def fails():
        raise UserError("no memory")

    def works():
        calls.append(1)
        return {"row": {"s": 1.0}}

    first = Proof(config)
    assert first.part("a", fails) is None
    assert first.part("b", works)["row"] == {"s": 1.0}
    second = Proof(config)
    assert second.parts["a"]["error"] == "no memory"
    assert second.part("a", works)["error"] is None
    assert second.part("b", works)["row"] == {"s": 1.0}
    assert len(calls) == 2  # b was not repeated
    with pytest.raises(UserError, match="was begun with other keys"):
        Proof(ProofConfig(str(tmp_path), [], True, Model("other"), 0.0))


def test_the_random_model_has_a_tokenizer_of_its_size(tmp_path):
    write_random_model(tmp_path, small=True)
    tokenizer = load_tokenizer(str(tmp_path))
    assert len(tokenizer) == 4096
    assert tokenizer("1+2=?")["input_ids"] == [4, 13, 5, 15, 16]
    assert tokenizer.unk_token_id not in tokenizer("a1+9-3=?")["input_ids"]


def test_a_row_of_the_table():
    step = {"seconds/generate": 2.0, "seconds/score": 0.0, "seconds/select": 0.0}
    step |= {"seconds/update": 4.0}
    checked = step | {"seconds/generate": 9.0}  # the guard's forward passes
    steps = [checked | {"engine/logprob_gap": gap} for gap in (0.01, 0.02, 0.01)] + [step] * 2
    steps = [line | {"tokens/generated": 6400 * (i + 1)} for i, line in enumerate(steps)]
    cells = row(steps)
    assert cells["tokens/s"] == 3200
    assert cells["step, s"] == 6
    assert cells["engine/logprob_gap"] == 0.02
    assert cells["peak_memory_gib/update"] is None  # not measured without a device


def test_unsloth_checkpoints_as_in_the_papers_setting():
    """It offloads from 512 tokens (prompt and completion) on."""
    bench, small = compose(*RANDOM, *GPU).sampling, compose(*RANDOM, *CPU).sampling
    paper = compose("experiment=gsm8k_qwen").sampling
    total = paper.max_prompt_length + paper.max_completion_length
    assert bench.max_prompt_length + bench.max_completion_length == total
    assert small.max_completion_length == 16
