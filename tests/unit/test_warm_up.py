"""The untimed step before the clock starts: at the longest lengths, and without a trace."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import set_seed

from pods.clock import Clock
from pods.config.errors import OutOfMemory
from pods.training import loop
from pods.training.warm_up import longest_batch, warm_up
from tests.configs import compose
from tests.steps import step_of
from tests.unit.test_trainer import build, callback_of, rows

SETTINGS = [
    "optimizer.warmup_steps=0",  # the one step has a learning rate
    "rollouts_per_prompt=8",
    "kept_per_prompt=4",
    "prompts_per_step=2",
    "micro_batch_size=4",
    "max_steps=1",
    "sampling.max_prompt_length=40",
    "sampling.max_completion_length=48",
]


@pytest.mark.parametrize("engine", ["transformers", "trl"])
def test_it_has_the_longest_lengths_and_leaves_no_trace(engine):
    trainer = build([*SETTINGS, f"engine={engine}"], dataset=rows())
    trainer.create_optimizer()
    model = trainer.model_wrapped = trainer.model
    answers, losses = [], []
    generate, compute_loss = trainer.sampler.engine.generate, trainer.compute_loss

    def noted(works, **keys):
        for answer in generate(works, **keys):
            answers.append(answer)
            yield answer

    def loss_of(model, inputs, *rest, **keys):
        losses.append([inputs[f"{k}_mask"].sum(dim=1).tolist() for k in ("prompt", "completion")])
        return compute_loss(model, inputs, *rest, **keys)

    trainer.sampler.engine.generate, trainer.compute_loss = noted, loss_of
    set_seed(trainer.args.seed, device_specific=True)  # from which the trainer starts
    before = [torch.get_rng_state(), *(weight.detach().clone() for weight in model.parameters())]
    model._unsloth_seq_packing_grad_ok, model._unsloth_seq_packing_nograd_unsafe_T = False, 9
    model._unsloth_prefix_grouper_grad_unsafe = {(1, (8,))}
    warm_up(trainer, compose(*SETTINGS), lambda name: nullcontext())
    after = [torch.get_rng_state(), *(weight.detach() for weight in model.parameters())]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert dict(trainer.optimizer.state) == {}
    assert all(p.grad is None for p in model.parameters())
    assert not [name for name in vars(model) if "unsloth" in name]  # real rollouts decide
    (_, first), *_, (longest, full) = answers  # between them the guard's
    assert longest.full_length
    for request in longest.requests:
        assert (len(request.prompt), len(request.seeds)) == (40, 8)  # n of each, as in a step
    assert min(len(c.token_ids) for group in first for c in group) < 48
    if engine != "trl":  # TRL's own generation ends where it ends
        assert {len(c.token_ids) for group in full for c in group} == {48}
    assert losses == [[[40] * 4, [48] * 4]]  # one micro-batch


@pytest.mark.parametrize(("optimizer", "bytes_each"), [("adamw_torch_fused", 4), ("adamw_8bit", 1)])
def test_the_memory_of_the_first_optimiser_step_is_held(monkeypatch, optimizer, bytes_each):
    trainer = build(SETTINGS, dataset=rows())
    trainer.create_optimizer()
    trainer.args.optim, trainer.model_wrapped = optimizer, trainer.model
    special = trainer.processing_class.eos_token_id  # alone it still gives full rows
    batch = longest_batch(trainer, rows()[0], [special] * 6, 8)
    assert batch["completion_mask"].sum(dim=1).tolist() == [8] * 8
    moments, held, compute_loss = trainer.first_moments(), [], trainer.compute_loss

    def loss_of(*args, **keys):
        held.append(sum(moment.nbytes for moment in moments))
        return compute_loss(*args, **keys)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "first_moments", lambda: moments)
        patch.setattr(trainer, "compute_loss", loss_of)
        trainer.dry_run_update(batch)
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    assert held == [2 * bytes_each * trained]
    assert moments == []
    trainer.optimizer.state[next(trainer.model.parameters())] = {"step": 1}  # as after a resume
    assert trainer.first_moments() == []


def test_its_peaks_stand_in_the_first_metric_line_alone(monkeypatch):
    clock = Clock(peak=lambda: 7.0)  # GiB

    def warm(*_):
        with clock.phase("generate"):
            pass

    callback = callback_of(
        build([], dataset=rows()),
        "warm_up=true",
        "optimizer.schedule_by=steps",
        "max_steps=2",
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


@pytest.mark.parametrize("on", [True, False])
def test_a_trial_compares_gradient_checkpointing_and_leaves_it_as_it_was(on, capsys):
    keys = [*SETTINGS, f"gradient_checkpointing={on}"]
    trainer = build(keys, dataset=rows())
    trainer.create_optimizer()
    model = trainer.model_wrapped = trainer.model
    if on:
        model.gradient_checkpointing_enable()
    seen, compute_loss = [], trainer.compute_loss

    def loss_of(*arguments, **keywords):
        seen.append((model.is_gradient_checkpointing, trainer.shares_prompts))
        return compute_loss(*arguments, **keywords)

    trainer.compute_loss = loss_of
    warm_up(trainer, compose(*keys, "trial=true"), lambda name: nullcontext())
    assert seen == [(on, not on), (True, False), (True, False), (False, True), (False, True)]
    assert "; set gradient_checkpointing=" in capsys.readouterr().out
    assert (model.is_gradient_checkpointing, trainer.args.gradient_checkpointing) == (on, on)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("kept", "size", "most", "tried", "said"),
    [
        (4, 4, 2, [4, 2, 2], "with false micro_batch_size=2; set"),
        (3, 6, 1, [6, 3, 2, 1, 1], "with false micro_batch_size=1; set"),
        (4, 4, 0, [4, 2, 1], "memory is too small; leave it true"),
    ],
)
def test_a_trial_lowers_the_micro_batch_until_it_fits_without_recomputation(
    kept, size, most, tried, said, capsys
):
    keys = [*SETTINGS, f"kept_per_prompt={kept}", f"micro_batch_size={size}"]
    keys.append("gradient_checkpointing=true")
    trainer = build(keys, dataset=rows())
    trainer.create_optimizer()
    model = trainer.model_wrapped = trainer.model
    model.gradient_checkpointing_enable()
    compute_loss, sizes = trainer.compute_loss, []

    def loss_of(model, inputs, *arguments, **keywords):
        if not model.is_gradient_checkpointing:
            sizes.append(len(inputs["advantages"]))
            if sizes[-1] > most:
                raise torch.OutOfMemoryError("full")
        return compute_loss(model, inputs, *arguments, **keywords)

    trainer.compute_loss = loss_of
    warm_up(trainer, compose(*keys, "trial=true"), lambda name: nullcontext())
    assert sizes == tried
    assert said in capsys.readouterr().out
    assert model.is_gradient_checkpointing
    assert trainer.args.per_device_train_batch_size == size
