"""trial=true: what it prints, that nothing stays, and its arithmetic against known seconds."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from pods.algorithms import ALGORITHMS
from pods.batch import Batch, Step
from pods.config.errors import UserError
from pods.requirements import requirements_of
from pods.rules import max_variance
from pods.training import trial
from tests.configs import compose
from tests.conftest import ROOT


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
    steps = [step | {"seconds/update": seconds} for seconds in (100.0, 0.3, 0.5, 0.7, 0.5)]
    steps[0] |= {"engine/logprob_gap": 0.0123, "peak_memory_gib/warmup_update": 12.5}
    for metrics, gib in zip(steps, (7.5, 9.25, 8.0, 8.0, 8.0), strict=True):
        metrics["peak_memory_gib/update"] = gib
    seconds = "seconds/generate 1.00\nseconds/score 0.50\nseconds/select 0.00\nseconds/update 0.50"
    gaps = "engine/logprob_gap 0.0123\npeak_memory_gib/warmup_update 12.5"
    report = trial.report(compose("experiment=quickstart", *overrides), steps)
    parts = [seconds, gaps, "peak_memory_gib/update 9.25", *answers]
    assert [part for part in parts if part not in report] == []


def test_the_report_compares_the_later_steps_with_grpo():
    own = {"seconds/generate": 3.0, "seconds/update": 1.17}
    grpo = {"seconds/generate": 2.0, "seconds/update": 1.0}
    first = dict.fromkeys(own, 100.0)
    slow, fast = own | {"seconds/update": 1.47}, own | {"seconds/update": 0.87}
    steps = [first, own, slow, fast, own, first, *[grpo] * 4]
    text = trial.report(compose("experiment=quickstart"), steps)
    assert "GRPO with n = m = 4: seconds/generate 2.00, seconds/update 1.00" in text
    assert "c: a step of pods takes 1.39 times a GRPO step" in text
    assert "1.29 to 1.49 in single steps" in text
    experiment = next(line for line in text.splitlines() if "PODS broke even" in line)
    results = re.findall(r"\d\.\d\d \([^)]+\)", experiment)
    readme = (ROOT / "README.md").read_text()  # whose numbers are recomputed from the rows
    assert [result in readme for result in results] == [True, True, True]
    assert "seconds/update 1.17" in text


@pytest.mark.parametrize(
    ("algorithm", "steps"), [("pods", 10), ("thin", 10), ("grpo", 5), ("grpo_ga", 5), ("dapo", 5)]
)
def test_an_algorithm_that_trains_on_other_rollouts_than_grpo_has_twice_the_steps(algorithm, steps):
    config = compose("experiment=quickstart", f"algorithm={algorithm}")
    assert trial.short(config, Path("folder")).max_steps == steps


def test_the_later_steps_sample_and_train_on_m_rollouts_of_each_prompt():
    config = compose("experiment=quickstart", "updates_per_generation=2")
    algorithm = trial.with_grpo_steps(config)
    assert requirements_of(algorithm) == requirements_of(ALGORITHMS["pods"])
    for number, count in ((0, 8), (9, 8), (10, 4), (19, 4)):
        rng = np.random.default_rng(0)
        step = Step(number, 2, 8, 4, ["a", "b"], fresh=lambda k: [], history={}, rng=rng)
        asked = algorithm(step, rule=max_variance)
        assert next(asked) == (step.prompts, count)
        rewards = np.arange(2 * count) % 3.0
        with pytest.raises(StopIteration) as end:
            asked.send(Batch(prompt=np.repeat([0, 1], count), rewards=rewards))
        assert len(getattr(end.value.value, "kept", end.value.value)) == 8


def test_completions_without_format_are_named_with_a_remedy():
    record = {"prompt": "1+1? <think>\n", "completions": ["2</think><answer>2</answer>", "2"]}
    assert trial.count_well_formed([record]) == "well formed: 1 of 2 completions"
    assert "0 of 1 completions; if the task" in trial.count_well_formed(
        [record | {"completions": ["2"]}]
    )


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
