"""train.py: two steps of the quickstart and two with other overrides. It learns, and sweeps:
tests/nightly/test_commands.py. In fresh interpreters: test_wheel.py."""

import pytest
import torch
from safetensors.torch import load_file

from pods import files
from pods.runs import checkpoints
from tests import processes
from tests.conftest import ROOT


def test_two_steps_of_the_quickstart_change_the_adapter(tmp_path):
    processes.run(tmp_path, "max_steps=2", "budget.train_seconds=null", "run=r", "clock=l40s")
    run = tmp_path / "checkpoints" / "r"
    lines = files.read_lines(run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["kept/reward_variance"] >= line["all/reward_variance"] - 1e-9
    assert (lines[-1]["rollouts/generated"], lines[-1]["rollouts/trained"]) == (2 * 64, 2 * 32)
    adapter = load_file(run / "checkpoint-2" / "adapter_model.safetensors")
    changed = [torch.any(value != 0) for name, value in adapter.items() if "lora_B" in name]
    assert len(changed) == 21  # seven matrices in each of three layers; lora_B starts at zero
    assert all(changed)


def test_overrides_work(tmp_path):
    keys = ["algorithm=grpo", "rollouts_per_prompt=4", "rewards=v1", "loss.type=grpo"]
    keys += ["loss.beta=0.04", "resume=never", f"model.path={ROOT / 'pods' / 'tiny_policy'}"]
    trains_two_steps(tmp_path, *keys, "backend=transformers")


LOGGING = """
def own(completions, log_metric, log_extra, **_):
    log_metric("length", sum(map(len, completions)) / len(completions))
    log_metric("nothing", float("nan"))
    log_extra("reversed", [text[::-1] for text in completions])
    return [len(text) / 100 for text in completions]
"""


def test_what_a_reward_logs_is_in_the_metrics_and_beside_the_completions(tmp_path):
    (tmp_path / "own.py").write_text(LOGGING)
    keys = ["max_steps=2", "ledger_texts=all", "algorithm=dapo", "rewards.functions.own=own.py:own"]
    processes.run(tmp_path, *processes.SMALL, *keys)
    run = tmp_path / "checkpoints" / "r"
    rollouts = files.read_lines(run / "rollouts.jsonl.gz")
    for line in files.read_lines(run / "metrics.jsonl"):
        texts = [t for r in rollouts if r["step"] == line["step"] for t in r["completions"]]
        lengths = [len(text) for text in texts]
        assert line["log_metric/length"] == pytest.approx(sum(lengths) / len(lengths), rel=1e-5)
        assert "log_metric/nothing" not in line
    for record in rollouts:
        reversed_texts = [{"reversed": text[::-1]} for text in record["completions"]]
        assert record["log_extra"] == reversed_texts


def trains_two_steps(folder, *keys):
    processes.run(folder, *processes.SMALL, "max_steps=2", *keys)
    run = folder / "checkpoints" / "r"
    assert [line["step"] for line in files.read_lines(run / "metrics.jsonl")] == [1, 2]
    assert checkpoints.damage(checkpoints.find(run)[-1]) is None
