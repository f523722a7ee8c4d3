"""The guard: an engine must sample from the policy that is trained."""

from types import SimpleNamespace

import pytest
import torch

from pods.config.errors import RunFailed
from pods.engines import Completion, LivePolicy, Request
from pods.training.guard import Guard
from pods.trl_adapter import TrlAdapter
from tests.fake_run import Faulty
from tests.unit.test_trainer import build, rows

SETTINGS = [
    "prompts_per_step=2",
    "rollouts_per_prompt=8",
    "kept_per_prompt=4",
    "max_steps=5",
    "sampling.temperature=0.9",
    "guard.check_every=4",
]


class Silent:
    """An engine that samples nothing."""

    def generate(self, works, *, logprobs=False):
        for work in works:
            yield work, []


def guarded(**fault):
    trainer = build(SETTINGS, dataset=rows(), wrap=lambda engine: Faulty(engine, **fault))
    return trainer, trainer.sampler.guard, trainer.sampler.engine


def test_an_engine_with_the_adapter_passes_and_training_is_left_alone():
    trainer, guard, engine = guarded()
    seen, inner = [], guard.check
    guard.check = lambda *arguments: (inner(*arguments), seen.append(guard.metrics))
    trainer.train()
    assert [sorted(metrics) for metrics in seen] == [
        ["engine/logprob_gap", "engine/probe_gap", "engine/probe_gap_without_adapter"],
        *[["engine/logprob_gap"]] * 2,
        [],
        ["engine/logprob_gap"],
    ]
    assert max(metrics.get("engine/logprob_gap", 0) for metrics in seen) < 1e-4
    assert engine.asked == [True, True, True, True, False, True]  # the second is the probe
    plain = build(SETTINGS, dataset=rows())
    plain.guard = None
    plain.train()
    weights = [t.model.state_dict() for t in (trainer, plain)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_a_resumed_process_checks_again_without_a_trace_in_the_metrics():
    trainer, guard, _ = guarded()
    trainer.state.global_step = 17
    assert guard.due(17)
    guard.calls = 3
    assert (guard.due(17), guard.due(20)) == (False, True)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"base": True}, r"ignores the adapter.* nats without the change$"),
        ({"offset": 0.2}, "max_logprob_gap"),
        ({"offset": float("nan")}, "max_logprob_gap"),
    ],
)
def test_an_engine_with_another_policy_ends_the_run_before_the_first_update(fault, reason):
    trainer, _, _ = guarded(**fault)
    with pytest.raises(RunFailed, match=reason):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize(
    ("changed", "unchanged", "passes"),
    [
        (0.49, 1.0, True),
        (0.51, 1.0, False),  # half is the limit
        (0.4, 0.0, False),
        (0.0, 0.0, False),  # the unchanged adapter is served; or proves nothing
        (float("nan"), 1.0, False),
        (0.1, float("nan"), False),
    ],
)
def test_the_changed_adapter_must_explain_the_engine_twice_as_well(changed, unchanged, passes):
    guard = Guard(Silent(), None, max_gap=0.1, check_every=1)
    gaps = iter([changed, unchanged])
    guard.gap = lambda requests, groups: next(gaps)
    arguments = [Request([1], [7, 8]), Request([2], [9, 10])], LivePolicy(torch.nn.Linear(1, 1), 0)
    if passes:
        proof = {"engine/probe_gap": changed, "engine/probe_gap_without_adapter": unchanged}
        assert guard.probe(*arguments) == proof
    else:
        with pytest.raises(RunFailed, match=r"ignores the adapter.* nats without the change$"):
            guard.probe(*arguments)


def test_an_engine_without_log_probabilities_proves_nothing():
    _, guard, _ = guarded()
    with pytest.raises(RunFailed, match="no log-probabilities"):
        guard.gap([Request([5], [0])], [[Completion([6], False)]])


def test_the_trainers_log_probabilities_of_one_batch_are_those_of_each_completion():
    trainer = build(SETTINGS, dataset=rows())
    prompts, completions = [[5, 6, 7], [5, 6, 7], [8]], [[20, 21], [30], [9, 10, 11]]
    together = trainer.token_logprobs(prompts, completions)
    assert [len(values) for values in together] == [2, 1, 3]
    for prompt, completion, values in zip(prompts, completions, together, strict=True):
        (alone,) = trainer.token_logprobs([prompt], [completion])
        torch.testing.assert_close(values, alone, atol=1e-4, rtol=0)


def test_the_trainers_log_probabilities_are_asked_for_as_in_every_trl():
    """In TRL 1.14 what follows these four arguments has to be named."""

    def scored(model, input_ids, attention_mask, logits_to_keep, **named):
        assert input_ids.tolist() == [[0, 5, 7, 0], [5, 6, 8, 9]]
        assert attention_mask.tolist() == [[0, 1, 1, 0], [1, 1, 1, 1]]
        assert named == {"batch_size": 2}
        return -torch.ones(2, logits_to_keep), None, None

    trainer = SimpleNamespace(
        model=torch.nn.Identity(),
        accelerator=SimpleNamespace(device="cpu"),
        args=SimpleNamespace(per_device_train_batch_size=2),
        _tokenizer=SimpleNamespace(pad_token_id=0),
        _get_per_token_logps_and_entropies=scored,
    )
    logprobs = TrlAdapter.token_logprobs(trainer, [[5], [5, 6]], [[7], [8, 9]])
    assert [values.tolist() for values in logprobs] == [[-1], [-1, -1]]
