"""A training that cannot learn is refused, or says so, before it starts."""

from asyncio import CancelledError
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from pods import PodsTrainer
from pods.dry_run import refuse_wrong_gradients
from pods.models.policy import load_tokenizer
from pods.scoring import RewardError, checked
from pods.training import loop
from pods.training.check import (
    say_if_clipped,
    say_if_not_evaluated,
    say_if_system_is_unknown,
)
from pods.training.rewards import Rewards
from tests.configs import compose
from tests.nightly.test_drop_in import MODEL
from tests.unit.test_pods_trainer import trainer_of


def test_a_policy_whose_adapter_is_frozen_is_refused_with_the_remedy(tmp_path):
    base = AutoModelForCausalLM.from_pretrained(MODEL)
    get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(tmp_path)
    frozen = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(MODEL), tmp_path)
    with pytest.raises(ValueError, match=r"no trainable parameter.* is_trainable=True"):
        trainer_of(PodsTrainer, tmp_path / "out", model=frozen)


def test_a_learning_rate_of_0_at_every_step_is_refused_or_said(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"^learning_rate=0: no step would change a weight"):
        trainer_of(PodsTrainer, tmp_path, learning_rate=0.0)
    trainer_of(PodsTrainer, tmp_path, max_steps=1, warmup_steps=5, lr_scheduler_type="linear")
    assert "has the learning rate 0" in capsys.readouterr().err


@pytest.mark.parametrize(("lora", "rate"), [(True, 1e-6), (True, 1e-5), (False, 1e-6)])
def test_trls_default_rate_is_named_with_lora(tmp_path, capsys, lora, rate):
    trainer_of(PodsTrainer, tmp_path, lora=lora, learning_rate=rate)
    assert ("learning_rate=1e-06" in capsys.readouterr().err) == (lora and rate == 1e-6)


@pytest.mark.parametrize(("limit", "weight", "said"), [(4, 1, True), (4, 0, False), (99, 1, False)])
def test_a_limit_below_the_shortest_answer_is_said(capsys, limit, weight, said):
    weights = [f"rewards.weights.{name}={weight}" for name in ("correctness", "format", "tags")]
    weights += [] if weight else ["rewards.functions.own=pods/tasks/arithmetic.py:near"]
    config = compose(f"sampling.max_completion_length={limit}")
    config.rewards = config.rewards.model_copy(
        update={"weights": dict.fromkeys(("correctness", "format", "tags"), weight)}
    )
    rows = [{"prompt": "", "answer": "123456"}, {"prompt": "", "answer": "12"}]
    say_if_clipped(config, load_tokenizer(str(MODEL)), rows)
    line = capsys.readouterr().err
    assert line.startswith(f"sampling.max_completion_length={limit}: ") == said


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("questions=9 every_seconds=30", ""),  # of 60 s
        ("questions=9 every_seconds=90", "evaluation.every_seconds=90.0: the run ends before"),
        ("questions=9 every_seconds=null", "evaluation.questions=9: has no effect"),
        ("questions=null every_seconds=90", ""),
        ("questions=9 every_seconds=30 max_steps=5", ""),
        ("questions=9 every_seconds=90 budget.train_seconds=null max_steps=5", ""),
        ("questions=9 every_seconds=90 trial=true", ""),
        ("questions=9 every_seconds=null trial=true", ""),
    ],
)
def test_questions_that_no_evaluation_may_ask_are_said(capsys, keys, said):
    first, second, *others = keys.split()
    config = compose(f"evaluation.{first}", f"evaluation.{second}", *others)
    say_if_not_evaluated(config)
    line = capsys.readouterr().err
    assert line.startswith(said) if said else line == ""


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("task=gsm8k", True),
        ("task=gsm8k task.system=''", False),
        ("task=gsm8k model.name=mine", True),  # by its folder, not by a name
        ("task=gsm8k model.path=org/model", False),
        ("task=arithmetic", False),
    ],
)
def test_a_system_text_for_the_embedded_model_is_said(capsys, keys, said):
    say_if_system_is_unknown(compose(*keys.split()))
    assert ("set 'task.system=" in capsys.readouterr().err) == said


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("1.0", True),
        ("float(answer[0] + '.' in t)", True),
        ("float('7.' in t)", False),  # it may look for something else than the gold answer
        ("float(len(t))", False),
        ("float('<answer>7</answer>' in t)", False),  # README's
        ("float('<answer>\\n7\\n</answer>' in t)", False),  # the format of the system text
        ("float('boxed{7}' in t)", False),
        ("float(t.endswith('#### 7'))", False),
        ("float(t == '7')", False),
    ],
)
def test_a_reward_of_one_value_is_said_by_the_dry_run(tmp_path, capsys, returned, said):
    file = tmp_path / "own.py"
    columns = ", answer" if "answer[" in returned else ""
    file.write_text(f"def function(completions{columns}): return [{returned} for t in completions]")
    config = compose("rewards=v2").rewards
    config.functions = {"own": f"{file}:function"}
    rewards = Rewards(config)
    rewards.dry_run({"prompt": "", "answer": "7", "kind": "math"})
    assert ("rewards.functions.own=" in capsys.readouterr().err) == said


class Asked:
    """A reward as a callable object, which is awaited as an `async def` function is."""

    __name__ = "asked"

    async def __call__(self, completions, **_):
        return [float(len(text)) for text in completions]


def test_an_async_callable_object_is_awaited(tmp_path):
    trainer = trainer_of(PodsTrainer, tmp_path, rewards=Asked(), max_steps=1)
    trainer.train()
    lengths = [len(rollout.text) for rollout in trainer.newest.rollouts]
    assert trainer.newest.batch.by_function["asked"].tolist() == lengths


def cancelled(completions, **_):
    raise CancelledError


async def cancelled_later(completions, **_):
    raise CancelledError


async def interrupted_later(completions, **_):
    raise KeyboardInterrupt


def called(reward):
    state = SimpleNamespace(global_step=3)
    values = reward(prompts=["q"], completions=["a"], trainer_state=state)
    values.send(None)  # of a coroutine


@pytest.mark.parametrize("reward", [cancelled, cancelled_later, interrupted_later])
def test_an_error_that_would_end_a_thread_is_the_rewards(reward):
    with pytest.raises(RewardError, match=r"reward function own raised \w+\(\).* at step 3"):
        called(checked(reward, "own"))


@pytest.mark.parametrize("error", [CancelledError, KeyboardInterrupt])
def test_an_async_reward_of_a_run_names_its_error(tmp_path, error):
    file = tmp_path / "own.py"
    body = f"from asyncio import CancelledError\nasync def function(**_): raise {error.__name__}"
    file.write_text(body)
    config = compose("rewards=v2").rewards
    config.functions = {"own": f"{file}:function"}
    rewards = Rewards(config)
    later = rewards.functions[-1](prompts=["a"], completions=["b"])
    with pytest.raises(RewardError, match=f"own raised {error.__name__}"):
        later.send(None)


@pytest.mark.parametrize(
    ("running", "saved"), [("score", [True]), ("update", [])], ids=["in a reward", "in an update"]
)
def test_finished_steps_are_saved_when_code_of_the_users_ends_the_process(running, saved):
    class Ends(BaseException):
        pass

    made = []
    saves = SimpleNamespace(step=2, save=lambda _: made.append(True), last=lambda: "last: 2")
    run = SimpleNamespace(
        saves=saves,
        config=None,
        logged=3,
        clock=SimpleNamespace(running=running),
        meter=SimpleNamespace(counters={}),
        trainer=SimpleNamespace(state=SimpleNamespace(global_step=3)),
    )
    with pytest.raises(Ends), loop.one_line_errors(run):
        raise Ends
    assert made == saved


def test_moments_of_another_shape_are_named(tmp_path):
    from safetensors.torch import save_file

    from pods.runs.checkpoints import moments_damage

    save_file({"a": torch.zeros(2, 3)}, tmp_path / "adapter_model.safetensors")
    for moment, reason in (
        (torch.zeros(2, 3), None),
        (torch.zeros(3, 2), "optimizer.pt: 2 moments of shape (3, 2)"),
    ):
        state = {0: {"step": torch.tensor(1.0), "exp_avg": moment, "exp_avg_sq": moment}}
        torch.save({"state": state, "param_groups": []}, tmp_path / "optimizer.pt")
        problem = moments_damage(tmp_path)
        assert problem is reason is None or problem.startswith(reason)


@pytest.mark.parametrize(
    ("kind", "keys", "wrong"),
    [
        ("Llama", {}, False),
        ("Gemma2", {}, True),  # caps its logits
        ("Gemma2", {"final_logit_softcapping": None}, False),
        ("Granite", {"logits_scaling": 8.0}, True),
    ],
)
def test_ligers_loss_is_refused_where_logits_are_scaled_or_capped(kind, keys, wrong):
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    config = getattr(transformers, f"{kind}Config")(**sizes, **heads, **keys, pad_token_id=0)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=2)
    with pytest.raises(ValueError, match="scales or caps") if wrong else nullcontext():
        refuse_wrong_gradients(SimpleNamespace(use_liger_kernel=True), model)
    refuse_wrong_gradients(SimpleNamespace(use_liger_kernel=False), model)
    next(model.parameters()).ds_id = 0  # as DeepSpeed marks the weights that it divides
    refuse_wrong_gradients(SimpleNamespace(use_liger_kernel=True), model)


class QuantisesItsInput(torch.nn.Linear):
    def forward(self, rows):
        return super().forward(rows.detach().round())


def test_a_base_that_passes_no_gradient_is_refused():
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    args = SimpleNamespace(use_liger_kernel=False)
    model.config.quantization_config = SimpleNamespace(quant_method="torchao")
    refuse_wrong_gradients(args, model)
    model.model.layers[0].mlp.down_proj.__class__ = QuantisesItsInput
    with pytest.raises(ValueError, match=r"layer model\.layers\.0\.mlp\.down_proj quantises"):
        refuse_wrong_gradients(args, model)
