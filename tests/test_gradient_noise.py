"""Norms of half-gradients: right numbers, and no trace in the run."""

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from pods import ranks
from pods.clock import Clock
from pods.config.errors import UserError
from pods.training.gradient_noise import balanced_halves
from tests.configs import compose
from tests.test_clock import Time
from tests.test_trainer import adapter, build, rows

SIZES = ["prompts_per_step=2", "rollouts_per_prompt=16", "kept_per_prompt=8", "lora.dropout=0.1"]


def test_measuring_leaves_the_run_as_it_was_to_the_bit():
    ends = []
    for every in (0, 2):
        trainer, rollouts = build([*SIZES, f"planner.gradient_noise_every={every}"], dataset=rows())
        seen, logged = [], []

        class Watch(TrainerCallback):
            def on_log(self, *_: object, logs: dict, **__: object) -> None:
                seen.append({**rollouts.noise})  # noqa: B023
                logged.append({k: v for k, v in logs.items() if "time" not in k})  # noqa: B023

        trainer.add_callback(Watch())
        trainer.train()
        ends.append((adapter(trainer), logged[:3], [len(found) for found in seen[:3]]))
    (plain, logs, none), (measured, same_logs, found) = ends
    assert all(torch.equal(plain[key], measured[key]) for key in plain)
    assert logs == same_logs
    assert (none, found) == ([0, 0, 0], [3, 0, 3])  # steps 0 and 2


def test_the_norms_are_those_of_the_update():
    trainer, rollouts = build(
        ["rollouts_per_prompt=16", "kept_per_prompt=8", "micro_batch_size=8", "prompts_per_step=1",
         "loss.type=grpo", "max_steps=1", "planner.gradient_noise_every=1"],
        dataset=rows(),
    )  # fmt: skip
    norms = []

    class Watch(TrainerCallback):
        def on_log(self, *_: object, logs: dict, **__: object) -> None:
            norms.append(logs.get("grad_norm"))

    trainer.add_callback(Watch())
    trainer.train()
    half, prompt, step = (rollouts.noise[f"gradient_noise/{n}"] for n in ("half", "prompt", "step"))
    assert prompt == pytest.approx(norms[0] ** 2, rel=1e-3)
    assert step == pytest.approx(prompt)  # one prompt
    assert half > prompt  # a mean over fewer rows is noisier


@pytest.mark.parametrize("values", [[1.0, -1.0] * 8, np.linspace(-1, 1, 16)])
def test_halves_have_the_same_advantages(values):
    advantages = np.random.default_rng(0).permutation(values)
    first, second = balanced_halves(advantages)
    assert sorted([*first, *second]) == list(range(16))
    assert advantages[first].sum() == pytest.approx(advantages[second].sum(), abs=1e-12)


def test_time_off_the_clock_in_the_middle_of_a_step_is_not_training():
    time = Time()
    clock = Clock(time)
    clock.start_step()
    with clock.phase("generate"):
        time.seconds += 2.0
    with clock.phase("gradient_noise"):
        time.seconds += 50.0
    time.seconds += 1.0
    clock.end_step()
    assert clock.step == {"generate": 2.0, "update": 1.0}
    assert clock.train_seconds == 3.0
    assert clock.outside == {"gradient_noise": 50.0}


@pytest.mark.parametrize("overrides", [["kept_per_prompt=2"], ["kept_per_prompt=5"]])
def test_halves_need_an_even_number_of_kept_rollouts(overrides):
    with pytest.raises(UserError, match=r"gradient_noise_every=5: .*even and 4 or more; set 0"):
        compose("planner.gradient_noise_every=5", *overrides)


def test_several_processes_do_not_measure_noise(monkeypatch):
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    compose("prompts_per_step=2")
    with pytest.raises(UserError, match="gradient_noise_every=5: needs a single process; set 0"):
        compose("prompts_per_step=2", "planner.gradient_noise_every=5")


def test_a_step_with_uneven_groups_is_not_measured():
    trainer, rollouts = build([*SIZES, "planner.gradient_noise_every=1"], dataset=rows())
    rollouts.rule = lambda batch, budget, rng: (
        np.r_[0:5, 16:27] if batch.step else np.r_[0:8, 16:24]
    )
    seen = []

    class Watch(TrainerCallback):
        def on_log(self, *_: object, **__: object) -> None:
            seen.append(len(rollouts.noise))

    trainer.add_callback(Watch())
    trainer.train()
    assert seen[:3] == [3, 0, 0]
