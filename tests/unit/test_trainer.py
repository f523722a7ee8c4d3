"""Our trainer against the stock one, and the rows that it trains on."""

import math
import signal
from functools import partial

import numpy as np
import pytest
import torch
import transformers
import trl
from datasets import Dataset
from peft import AutoPeftModelForCausalLM

from pods.batch import AlgorithmError, Completion, Selection
from pods.clock import Clock
from pods.config.errors import EngineError, UserError
from pods.engines import LivePolicy, Work, choose
from pods.engines.trl import TrlEngine
from pods.models.policy import load_tokenizer, load_transformers
from pods.runs.folder import RunFolder
from pods.tasks import encode_prompts
from pods.training import logs, loop
from pods.training.build import build_trainer
from pods.training.loop import (
    DUPLICATE_SECONDS,
    RunCallback,
    Stop,
    restore_signals,
    schedule_by_clock,
)
from pods.training.rewards import Rewards
from tests.configs import compose
from tests.conftest import ROOT
from tests.fake_run import TINY, Faulty

SHORT = ["max_steps=3", "sampling.max_completion_length=8", "checkpoint.every_seconds=null"]


def rows():
    prompts = [f"<user>{i % 10}+{i % 7}=?<assistant>" for i in range(32)]
    ids = [str(i) for i in range(32)]
    tokens = encode_prompts(prompts, load_tokenizer(str(TINY)))
    texts = {"id": ids, "prompt": prompts, "answer": ids, "kind": ["math"] * 32}
    return Dataset.from_dict(texts | {"prompt_ids": tokens})


def correctness(completions, answer, **_):
    pairs = zip(completions, answer, strict=True)
    return [float(sum(map(ord, text)) % 17 + len(gold)) for text, gold in pairs]


def format(completions, **_):
    return [-0.01 * len(text) for text in completions]


def tags(completions, **_):
    return [0.3 * (len(text) % 3) for text in completions]


def rewards_of():
    """Those of a training with the functions above, which mixed-up rows change."""
    rewards = Rewards(compose("rewards=v2").rewards)
    rewards.functions = [correctness, format, tags]
    rewards.weights = {"correctness": 1.0, "format": 0.7, "tags": 1.3}
    rewards.grader = None
    return rewards


def policy_of(config):
    return load_transformers(config, load_tokenizer(config.model.path))


def build(overrides, *, dataset, algorithm=None, wrap=None):
    """algorithm: in place of the config's. wrap: around the engine."""
    config = compose(*SHORT, *overrides)
    policy = policy_of(config)
    config.engine = choose.for_training(config)[0]
    engine = choose.build_for_training(config, policy)
    engine = wrap(engine) if wrap else engine
    trainer = build_trainer(config, policy, dataset, rewards_of(), engine, Clock())
    if algorithm is not None:
        trainer.driver.algorithm = algorithm
    return trainer


def callback_of(trainer, *overrides, clock=None):
    """The callback of a new run with this trainer."""
    config = compose(*overrides)
    folder = RunFolder(config)
    return RunCallback(config, folder, trainer, clock or Clock(), rewards_of(), None, None)


def adapter(trainer):
    return adapter_of(trainer.model)


def adapter_of(model):
    return {k: v.clone() for k, v in model.state_dict().items() if "lora_" in k}


@pytest.mark.parametrize("target", ["k_prj", "mlp"])  # a block is no layer
def test_a_layer_of_the_adapter_that_the_model_lacks_is_named(target):
    config = compose(f"lora.target_modules=[q_proj,mlp.up_proj,{target}]")
    with pytest.raises(UserError, match=rf"^lora\.target_modules={target}: .*it has down_proj, "):
        policy_of(config)


@pytest.mark.parametrize(
    ("correction", "logprobs", "expected"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_a_loss_has_use_vllm_where_it_corrects_whichever_the_engine_is(
    monkeypatch, correction, logprobs, expected
):
    """Unsloth's own engine sets it, and with it a prompt is computed for each completion; without
    it Unsloth's loss, whose batch has no importance_sampling_ratio, does not correct."""
    key = f"trl.vllm_importance_sampling_correction={correction}"
    trainer = build(["engine=transformers", key], dataset=rows())
    seen = []
    monkeypatch.setattr(
        trl.GRPOTrainer, "compute_loss", lambda self, *_, **__: seen.append(self.use_vllm)
    )
    batch = {"sampling_per_token_logps": torch.zeros(1, 1)} if logprobs else {"prompt_ids": 0}
    for use_vllm in (False, True):
        trainer.use_vllm = use_vllm
        trainer.compute_loss(trainer.model, batch)
        assert trainer.use_vllm == use_vllm
    assert seen == [expected] * 2


def test_trl_samples_without_what_the_models_generation_config_would_add(capsys):
    config = compose(*SHORT, "engine=trl")
    policies = [policy_of(config) for _ in range(2)]
    policies[0].model.generation_config.suppress_tokens = list(range(20, 4000))
    policies[0].model.generation_config.min_p = 0.9
    ids = []
    for policy in policies:
        trainer = build_trainer(config, policy, rows(), rewards_of(), None, Clock())
        torch.manual_seed(0)
        ids.append(trainer.generate_ids([[5, 6, 7]] * 8)[0])
    assert ids[0] == ids[1]
    said = capsys.readouterr().err
    assert "min_p" in said
    assert "suppress_tokens" in said


def test_uneven_groups_are_trained_with_exactly_their_advantages():
    """3 rollouts of the first prompt and 13 of the second."""
    kept, advantages, checked = [2, 5, 11, *range(17, 30)], np.linspace(-1, 1, 16), []

    def uneven(step):
        yield step.prompts, step.n
        return Selection(kept[::-1], advantages[::-1])

    def check(record):
        batch, record = build_trl_batch(record)
        assert record.selection.kept.tolist() == kept
        np.testing.assert_allclose(batch["advantages"].numpy(), advantages, atol=1e-5)
        rows = zip(batch["completion_ids"], batch["completion_mask"], strict=True)
        trained = [ids[mask.bool()].tolist() for ids, mask in rows]
        assert trained == [record.rollouts[i].completion.token_ids for i in kept]
        checked.append(record)
        return batch, record

    sizes = ["rollouts_per_prompt=16", "kept_per_prompt=8", "micro_batch_size=4"]
    trainer = build(["prompts_per_step=2", *sizes], dataset=rows(), algorithm=uneven)
    build_trl_batch, trainer.build_trl_batch = trainer.build_trl_batch, check
    trainer.train()
    assert len(checked) == 3


def test_a_step_has_its_rollouts_also_where_several_cards_are_visible(monkeypatch):
    monkeypatch.setattr(transformers.TrainingArguments, "n_gpu", 2)
    trainer = build(["prompts_per_step=2", "micro_batch_size=8"], dataset=rows())
    trainer.train()
    assert len(trainer.newest.rollouts) == 2 * 8
    assert len(trainer.newest.selection.kept) == 2 * 4


def quantised(policy):
    """As far as TRL looks: it casts the adapters of a 4-bit base to bfloat16."""
    policy.model.is_loaded_in_4bit = True
    return policy


# An update of 5e-6 moves no bfloat16 number above 1.3e-3.
TRAINED = {
    "adapter": ([], lambda policy: policy),
    "adapter of a 4-bit base": ([], quantised),
    "every parameter": (["lora.rank=null", "lora.alpha=1"], lambda policy: policy),
}


@pytest.mark.parametrize(("keys", "changed"), TRAINED.values(), ids=TRAINED)
def test_what_is_trained_is_float32_whatever_the_model_computes_in(keys, changed):
    config = compose(*SHORT, "model.dtype=bfloat16", "max_steps=2", "engine=transformers", *keys)
    policy = changed(policy_of(config))
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.bfloat16}
    engine = choose.build_for_training(config, policy)
    trainer = build_trainer(config, policy, rows(), rewards_of(), engine, Clock())
    parameters = [*trainer.model.parameters()]
    trained = [p for p in parameters if p.requires_grad]
    assert {parameter.dtype for parameter in trained} == {torch.float32}
    fixed = {parameter.dtype for parameter in parameters if not parameter.requires_grad}
    assert fixed == ({torch.bfloat16} if config.lora.rank else set())  # the base keeps its type
    before = [parameter.detach().clone() for parameter in trained]
    trainer.train()
    assert any((p != b).any() for p, b in zip(trained, before, strict=True))


def test_a_gradient_is_corrected_by_the_log_probabilities_of_an_engine():
    """Of an engine that claims 0.05 nats less for each token: it counts exp(0.05) times."""
    keys = [
        "max_steps=1",
        "optimizer.name=sgd",
        "optimizer.learning_rate=1",
        "optimizer.schedule=constant",
        "optimizer.weight_decay=0",
        "optimizer.max_grad_norm=0",
        "trl.vllm_importance_sampling_mode=token_truncate",
    ]
    gradients, understating = [], partial(Faulty, offset=-0.05)
    for correction in (False, True):
        corrected = f"trl.vllm_importance_sampling_correction={correction}"
        trainer = build([*keys, corrected], dataset=rows(), wrap=understating)
        trainer.sampler.guard = None
        before = adapter(trainer)
        trainer.train()
        moved = [(before[name] - value).flatten() for name, value in adapter(trainer).items()]
        gradients.append(torch.cat(moved))
    expected = math.exp(0.05) * gradients[0]
    torch.testing.assert_close(gradients[1], expected, rtol=1e-3, atol=1e-5)
    logged = [trainer.state.log_history[0][name] for name in logs.OF_UPDATE[-2:]]
    assert logged == pytest.approx([math.exp(0.05)] * 2, rel=1e-3)


def first_rollouts(*overrides):
    """Question ids and texts of the first step."""
    trainer = build([*overrides, "max_steps=1", "optimizer.warmup_steps=0"], dataset=rows())
    torch.rand(5)  # whatever was sampled before
    trainer.train()
    record = trainer.newest
    texts = [rollout.text for rollout in record.rollouts]
    return list(record.prompts), [[texts[i] for i in group] for group in record.batch.groups]


def test_arms_with_one_seed_share_their_first_rollouts():
    """GRPO with n = 16 and PODS with n = 64, whatever the number of sequences at once."""
    sizes = ["seed=3", "sampling.max_completion_length=24", "prompts_per_step=2"]
    sizes += ["sampling.temperature=2"]
    ids, pods = first_rollouts(*sizes, "rollouts_per_prompt=64", "max_sequences=50")
    same_ids, grpo = first_rollouts(*sizes, "algorithm=grpo", "kept_per_prompt=16")
    assert ids == same_ids
    assert [group[:16] for group in pods] == grpo
    assert len({text for group in pods for text in group}) > 64


# A warm-up of 30 s, then down to 300 s.
@pytest.mark.parametrize(("seconds", "share"), [(15.0, 0.5), (165.0, 0.5), (299.0, 1 / 270)])
def test_arms_with_unlike_steps_have_one_learning_rate_at_equal_seconds(seconds, share):
    by_time = [
        "optimizer.schedule=linear",
        "optimizer.schedule_by=seconds",
        "budget.train_seconds=300",
        "optimizer.warmup_steps=0.1",
    ]
    trainer, clock = build(by_time, dataset=rows()), Clock()
    trainer.create_optimizer_and_scheduler(num_training_steps=3)
    schedule_by_clock(trainer.args, trainer.lr_scheduler, clock, 300)
    assert trainer.lr_scheduler.get_last_lr()[0] == 0.0  # the warm-up starts at 0 s
    for step in range(1, 8):  # seven steps, or one
        clock.train_seconds = seconds * step / 7
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    rates = [group["lr"] for group in trainer.optimizer.param_groups]
    assert rates == pytest.approx([1e-3 * share] * len(rates))


def test_a_library_default_that_creeps_in_is_found(monkeypatch):
    def changed(self):
        inner(self)
        self.weight_decay = 0.5

    inner = trl.GRPOConfig.__post_init__
    monkeypatch.setattr(trl.GRPOConfig, "__post_init__", changed)
    with pytest.raises(Exception, match="weight_decay"):
        build(["kept_per_prompt=4"], dataset=rows())


@pytest.mark.parametrize(
    ("sampled", "length", "clipped"),
    [
        ([5, 6, 1], 3, False),
        ([1, 5], 1, False),
        ([5, 2, 9, 9], 2, False),  # the model's other end token, then padding
        ([5, 6, 7], 3, True),  # ended by the length limit
    ],
)
def test_a_completion_of_trl_is_clipped_where_no_end_token_came(sampled, length, clipped):
    likely = [-0.1 * i for i in range(len(sampled))]
    completion = TrlEngine(None, [1, 2]).completion(sampled, likely)
    assert completion == Completion(sampled[:length], clipped, likely[:length])


def test_an_empty_completion_of_trl_has_its_end_token():
    assert TrlEngine(None, [1, 2]).completion([], []).token_ids == [1]


@pytest.mark.parametrize(("from_server", "kind"), [(True, EngineError), (False, OSError)])
def test_only_a_server_is_said_to_give_no_answer(from_server, kind):
    def full(*_):
        raise OSError("No space left on device")

    work = Work([], LivePolicy(None, 0))
    with pytest.raises(kind, match="No space left on device") as caught:
        next(TrlEngine(full, [1], from_server).generate([work]))
    assert ("vLLM server gave no answer" in str(caught.value)) == from_server


def test_an_adapter_finds_its_base_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where model.path=pods/tiny_policy is a folder
    trainer = build(
        ["kept_per_prompt=4", "max_steps=1", "optimizer.warmup_steps=0"], dataset=rows()
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    monkeypatch.chdir(tmp_path)
    loaded = AutoPeftModelForCausalLM.from_pretrained("adapter")
    saved, read = adapter(trainer), adapter_of(loaded)
    assert saved.keys() == read.keys()
    assert all(torch.equal(saved[key], read[key]) for key in saved)


def test_a_step_that_fails_leaves_history_and_order_as_they_were():
    def broken(step):
        batch = yield [*step.prompts, *step.fresh(1)], step.m
        return range(len(batch) if step.number == 1 else 8)  # 12 rows for a budget of 8

    sizes = ["prompts_per_step=2", "rollouts_per_prompt=8", "kept_per_prompt=4"]
    trainer = build(sizes, dataset=rows(), algorithm=broken)
    message = r"algorithm broken failed at step 1: returned 12 rollouts, more than budget .* 8$"
    with pytest.raises(AlgorithmError, match=message):
        trainer.train()
    assert [visit.step for visits in trainer.history.values() for visit in visits] == [0, 0, 0]
    assert trainer.fresh_used == 1


def test_a_signal_that_uv_passes_on_again_is_not_a_second_one(monkeypatch):
    """Under `timeout` or a scheduler the process group gets it, and `uv run` sends another."""
    ended = []
    monkeypatch.setattr(loop, "end_at_once", ended.append)
    stop = Stop(compose(), Clock())
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        stop.receive(number, None)
    assert (stop.received, ended) == (signal.SIGINT, [])
    stop.arrived[signal.SIGTERM] -= DUPLICATE_SECONDS
    stop.receive(signal.SIGTERM, None)
    assert ended == [signal.SIGTERM]


def test_a_signal_that_is_ignored_stays_so():
    """As SIGHUP under nohup."""
    with restore_signals():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        Stop(compose(), Clock()).handle_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
