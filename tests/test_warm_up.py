"""The untimed step before the clock starts: at the longest lengths, and without a trace."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import set_seed
from transformers import TrainerCallback

from pods.clock import Clock
from pods.config.errors import OutOfMemory
from pods.training import loop
from pods.training.warm_up import longest_batch, warm_up
from tests.configs import compose
from tests.steps import step_of
from tests.test_trainer import build, callback_of, rows

LONGEST = {"prompt": 40, "completion": 48}
SETTINGS = [
    "rollouts_per_prompt=8",
    "kept_per_prompt=4",
    "prompts_per_step=2",
    "micro_batch_size=4",
    "max_steps=1",
    "sampling.max_prompt_length=40",
    "sampling.max_completion_length=48",
]


class Spy(TrainerCallback):
    """Warms up as the loop does; notes the trainer before and after, what its engine answers as
    (work, completions), and the lengths of the rows of every loss."""

    def __init__(self, trainer):
        self.trainer, self.answers, self.losses = trainer, [], []
        engine, compute_loss = trainer.sampler.engine, trainer.compute_loss
        generate = engine.generate

        def noted(works, **keys):
            for answer in generate(works, **keys):
                self.answers.append(answer)
                yield answer

        def loss_of(model, inputs, *rest, **keys):
            self.losses.append({k: inputs[f"{k}_mask"].sum(dim=1).tolist() for k in LONGEST})
            return compute_loss(model, inputs, *rest, **keys)

        engine.generate, trainer.compute_loss = noted, loss_of
        trainer.add_callback(self)

    def state(self):
        weights = self.trainer.model.parameters()
        return [torch.get_rng_state(), *(weight.detach().clone() for weight in weights)]

    def on_train_begin(self, *_, **__):
        set_seed(self.trainer.args.seed, device_specific=True)  # from which the trainer starts
        before, model = self.state(), self.trainer.model
        model._unsloth_seq_packing_grad_ok, model._unsloth_seq_packing_nograd_unsafe_T = False, 9
        warm_up(self.trainer, compose(*SETTINGS), lambda name: nullcontext())
        torch.testing.assert_close(self.state(), before, rtol=0, atol=0)
        assert dict(self.trainer.optimizer.state) == {}
        assert all(p.grad is None for p in self.trainer.model.parameters())
        assert len(self.losses) == 1
        assert not [name for name in vars(model) if "unsloth" in name]  # real rollouts decide


@pytest.mark.parametrize("engine", ["transformers", "trl"])
def test_it_has_the_longest_lengths_and_leaves_no_trace(engine):
    trainer = build([*SETTINGS, f"engine={engine}"], dataset=rows())
    spy = Spy(trainer)
    trainer.train()
    ((work, groups),) = [answer for answer in spy.answers if answer[0].full_length]
    assert [len(r.prompt) for r in work.requests] == [40] * 2
    assert [len(r.seeds) for r in work.requests] == [8] * 2  # n of each prompt, as in a step
    if engine != "trl":  # TRL's own generation ends where it ends
        assert {len(c.token_ids) for group in groups for c in group} == {48}
    assert min(len(c.token_ids) for group in spy.answers[0][1] for c in group) < 48
    longest, *others = spy.losses
    assert longest == {"prompt": [40] * 4, "completion": [48] * 4}  # one micro-batch
    assert max(length for step in others for length in step["prompt"]) < 40


@pytest.mark.parametrize(("optimizer", "bytes_each"), [("adamw_torch_fused", 4), ("adamw_8bit", 1)])
def test_the_memory_of_the_first_optimiser_step_is_held(monkeypatch, optimizer, bytes_each):
    trainer = build(SETTINGS, dataset=rows())
    trainer.create_optimizer()
    trainer.args.optim, trainer.model_wrapped = optimizer, trainer.model
    special = trainer.processing_class.eos_token_id  # alone it still gives full rows
    batch = longest_batch(trainer, rows()[0], [special] * 6, 8)
    assert batch["completion_mask"].sum(dim=1).tolist() == [8] * 8
    taken, empty_like = [], torch.empty_like
    monkeypatch.setattr(
        torch, "empty_like", lambda *a, **k: taken.append(empty_like(*a, **k)) or taken[-1]
    )
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    trainer.dry_run_update(batch)
    assert sum(t.nbytes for t in taken) >= 2 * bytes_each * trained
    assert taken[0].dtype == (torch.uint8 if bytes_each == 1 else torch.float32)
    taken.clear()
    trainer.optimizer.state[next(trainer.model.parameters())] = {"step": 1}  # as after a resume
    trainer.dry_run_update(batch)
    assert sum(t.nbytes for t in taken) < 2 * bytes_each * trained


def test_its_peaks_stand_in_the_first_metric_line_alone(monkeypatch):
    clock = Clock(peak=lambda: 7.0)  # GiB

    def warm(*_):
        with clock.phase("generate"):
            pass

    callback = callback_of(
        build([], dataset=rows()),
        "warm_up=true",
        "optimizer.schedule_by=steps",
        "max_steps=1",
        clock=clock,
    )
    monkeypatch.setattr(loop, "warm_up", warm)
    with loop.restore_signals():
        callback.on_train_begin()
    lines = [callback.meter.line(step_of({"a": [0, 1]}, [0]), clock, {}) for _ in range(2)]
    assert [line.get("peak_memory_gib/warmup_generate") for line in lines] == [7.0, None]


@pytest.mark.parametrize(
    ("phases", "failing", "key"),
    [
        (["select"], "generate", "rollouts_per_prompt"),
        (["select", "generate", "score", "select"], "generate", "rollouts_per_prompt"),
        (["select", "generate", "score", "select"], None, "micro_batch_size"),
        (["warmup", "evaluate"], "generate", "rollouts_per_prompt"),
        (["generate", "score"], "update", "micro_batch_size"),
    ],
    ids=["a sample", "a second round", "an update", "after an evaluation", "the warm-up's update"],
)
def test_a_lack_of_memory_names_the_key_of_its_phase(phases, failing, key):
    clock = Clock()
    run = SimpleNamespace(config=compose(), clock=clock, saves=SimpleNamespace(last=lambda: "."))
    for phase in phases:
        with clock.phase(phase):
            pass
    last = clock.phase(failing) if failing else nullcontext()
    with pytest.raises(OutOfMemory, match=f"lower {key}="), loop.one_line_errors(run), last:
        raise torch.OutOfMemoryError("full")
