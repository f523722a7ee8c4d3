"""trial=true: what it prints, that nothing stays, and its arithmetic against known seconds."""

import pytest
import torch

from pods.config.errors import UserError
from pods.training import trial
from tests.configs import compose


@pytest.mark.parametrize(
    ("overrides", "answers"),
    [
        (["budget.train_seconds=60", "updates_per_generation=2"], ["about 60 steps in 60 s"]),
        (["max_steps=30"], ["about 30 steps in 60 s", "budget: 30 steps in about 60 s"]),
    ],
    ids=["two updates", "a number of steps"],
)
def test_the_report_leaves_the_first_step_out(overrides, answers):
    step = {"seconds/generate": 1.0, "seconds/score": 0.5, "seconds/select": 0.0}
    steps = [step | {"seconds/update": seconds} for seconds in (100.0, 0.5, 0.5)]
    steps[0] |= {"engine/logprob_gap": 0.0123, "peak_memory_gib/warmup_update": 12.5}
    for metrics, gib in zip(steps, (7.5, 9.25, 8.0), strict=True):
        metrics["peak_memory_gib/update"] = gib
    seconds = "seconds/generate 1.00\nseconds/score 0.50\nseconds/select 0.00\nseconds/update 0.50"
    gaps = "engine/logprob_gap 0.0123\npeak_memory_gib/warmup_update 12.5"
    report = trial.report(compose("experiment=quickstart", *overrides), steps)
    parts = [seconds, gaps, "peak_memory_gib/update 9.25", *answers]
    assert [part for part in parts if part not in report] == []


def test_completions_without_format_are_named_with_a_remedy():
    record = {"prompt": "1+1? <think>\n", "completions": ["2</think><answer>2</answer>", "2"]}
    assert trial.formed([record]) == "well formed: 1 of 2 completions"
    assert "0 of 1 completions; if the task" in trial.formed([record | {"completions": ["2"]}])


def test_cuda_starts_only_after_the_training_has_imported_unsloth(monkeypatch, tmp_path):
    """Unsloth's import changes what CUDA's allocator reads at its start."""
    started = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: started.append(1))

    def train(config):
        assert not started
        raise UserError("the training came first")

    with pytest.raises(UserError, match="came first"):
        trial.run(compose(f"output_dir={tmp_path}"), train)
