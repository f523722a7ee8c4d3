"""PodsTrainer in TRL's documented scripts: beside GRPOTrainer, resumed, filled up, refused.

It alone guards, by real trainings: weights equal to GRPOTrainer's to the bit, rows that only fill a
step, exact resumes in a script, what a subclass overrides."""

import inspect
import pickle
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
import trl
from datasets import Dataset, DatasetDict
from peft import LoraConfig, get_peft_model
from trl import GRPOConfig, GRPOTrainer, TrlParser
from trl.trainer.utils import RepeatSampler

from pods import PodsConfig, PodsTrainer
from pods.advantages import ADVANTAGES as ADVANTAGE_FUNCTIONS
from pods.batch import AlgorithmError
from pods.config.errors import UserError
from pods.scoring import RewardError
from pods.trl_adapter import TrlSampler
from tests.filled_steps import Scripted, rows_of_each
from tests.nightly.test_drop_in import CHAT, MODEL, PLAIN, SETTINGS, letters, sometimes, weights


def parity(completion_ids, **_):
    return [float(sum(ids) % 2) for ids in completion_ids]


async def later(completion_ids, **_):
    return [float(ids[0] % 5) for ids in completion_ids]


def first_token(completion_ids, **_):
    return [float(ids[0]) for ids in completion_ids]


def spread(completion_ids, **_):
    return [float(sum(ids) % 97) for ids in completion_ids]


def never(completions, **_):
    return [None] * len(completions)


def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(MODEL)


def judge():
    """A small random reward model."""
    torch.manual_seed(1)
    tokens = {"vocab_size": len(tokenizer()), "pad_token_id": tokenizer().pad_token_id}
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, num_labels=1, **tokens)
    return transformers.GPT2ForSequenceClassification(config).eval()


def trainer_of(
    kind,
    folder,
    data=PLAIN,
    rewards=letters,
    lora=False,
    evaluated=False,
    model=MODEL,
    own=None,
    **changes,
):
    """GRPOTrainer or PodsTrainer; `own`: arguments of PodsTrainer."""
    config = PodsConfig if issubclass(kind, PodsTrainer) else GRPOConfig
    values = {**SETTINGS, "output_dir": str(folder), **changes}
    modules = isinstance(rewards, torch.nn.Module)
    transformers.set_seed(0)  # LoRA's first weights precede TRL's own set_seed
    trainer = kind(
        model=model,
        reward_funcs=rewards,
        args=config(**values),
        train_dataset=data,
        eval_dataset=data if evaluated else None,
        processing_class=tokenizer(),
        reward_processing_classes=tokenizer() if modules else None,
        peft_config=LoraConfig(r=4, target_modules=["q_proj"]) if lora else None,
        **(own or {}),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


# What users write, and the settings of TRL that touch the batch; an epoch has three steps.
SCRIPTS = {
    "plain prompts": {},
    "chat, async, two rewards with weights": {
        "data": CHAT,
        "rewards": [later, letters],
        "reward_weights": [0.3, 2.0],
    },
    "None for some, and from one for all": {"rewards": [never, sometimes]},
    "None for all": {"rewards": never},
    "a reward model, chat": {"rewards": judge(), "data": CHAT},
    "LoRA, KL, truncated masked": {"lora": True, "beta": 0.1, "mask_truncated_completions": True},
}
CHANGES = {
    "scaled by the batch": {"scale_rewards": "batch"},
    "not scaled": {
        "scale_rewards": "none",
        "loss_type": "dr_grpo",
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
    },
    "normalised first": {
        "rewards": [letters, parity],
        "loss_type": "bnpo",
        "multi_objective_aggregation": "normalize_then_sum",
    },
    "two iterations of two updates": {
        "steps_per_generation": 2,
        "num_iterations": 2,
        "per_device_train_batch_size": 4,
        "max_steps": 13,
        "mask_truncated_completions": True,
        "loss_type": "grpo",
    },
    "two generations an update": {"steps_per_generation": 1, "gradient_accumulation_steps": 2},
    "streamed": {"data": PLAIN.to_iterable_dataset()},
    "evaluated meanwhile": {
        "evaluated": True,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "per_device_eval_batch_size": 24,
    },
}


CASES = SCRIPTS | CHANGES
# The others: tests/nightly/test_pods_trainer.py.
FAST = ["chat, async, two rewards with weights", "LoRA, KL, truncated masked"]
FAST += ["two iterations of two updates"]


@pytest.mark.filterwarnings("error:.*NaN slice:RuntimeWarning", "error:Mean of empty")
@pytest.mark.parametrize("case", FAST)
def test_grpo_equals_trls_trainer_to_the_bit_over_two_epochs(case, tmp_path):
    grpo_equals_trls_trainer(CASES[case], tmp_path)


def grpo_equals_trls_trainer(case, tmp_path):
    theirs = trainer_of(GRPOTrainer, tmp_path, **case)
    theirs.train()
    ours = trainer_of(PodsTrainer, tmp_path, **case, algorithm="grpo")
    start = weights(ours)
    ours.train()
    assert same(weights(theirs), weights(ours))
    assert same(start, weights(ours)) == (case.get("rewards") is never)
    if isinstance(ours.train_dataset, Dataset):  # the history names the prompts by their rows
        for prompt in ours.newest.prompts:
            assert ours.train_dataset[int(prompt)]["prompt"] == prompt.row["prompt"]
    mine, other = (trainer.state.log_history[2] for trainer in (ours, theirs))
    for name in ("reward", "reward_std", "grad_norm", "num_tokens", "completions/mean_length"):
        assert mine.get(name) == other.get(name)


def test_completions_are_logged_beside_their_own_rewards_and_advantages(tmp_path):
    def logging(completions, log_metric, **_):
        log_metric("rows", len(completions))
        return [float(len(set(text))) for text in completions]

    settings = {"log_completions": True, "max_steps": 1, "rollouts_per_prompt": 12}
    trainer = trainer_of(PodsTrainer, tmp_path, rewards=logging, **settings)
    trainer.train()
    (path,) = (tmp_path / "completions").iterdir()
    table, record = pd.read_parquet(path), trainer.newest
    kept = record.selection.kept
    assert table["completion"].tolist() == [record.rollouts[i].text for i in kept]
    assert table["logging"].tolist() == record.batch.rewards[kept].tolist()
    np.testing.assert_allclose(table["advantage"], record.selection.advantages, rtol=1e-6)
    assert trainer.state.log_history[0]["rows"] == 24


def test_columns_of_a_reward_stay_beside_their_completions_around_an_evaluation(tmp_path):
    """One is logged always, one in evaluations, and one in training, where some have two values."""

    def logging(completions, log_extra, **_):
        log_extra("always", list(completions))
        log_extra("training" if trainer.model.training else "evaluation", list(completions))
        log_extra("twice", completions * 2)
        return [float(len(set(text))) for text in completions]

    settings = {"log_completions": True, "max_steps": 3, "num_generations_eval": 2}
    settings |= {"eval_strategy": "steps", "eval_steps": 2, "rollouts_per_prompt": 8}
    trainer = trainer_of(PodsTrainer, tmp_path, rewards=logging, evaluated=True, **settings)
    trainer.evaluate()
    with pytest.warns(match=r"^log_extra\('twice'\) needs a value for each completion"):
        trainer.train()
    seen = set()
    for path in (tmp_path / "completions").iterdir():
        table = pd.read_parquet(path)
        assert table["always"].tolist() == table["completion"].tolist()
        for name in {"training", "evaluation", "twice"} & {*table}:
            logged = table[table[name].notna()]
            assert logged[name].tolist() == logged["completion"].tolist()
            seen |= {name} if len(logged) else set()
    assert seen >= {"training", "evaluation"}


def test_an_adapter_has_one_start_whatever_was_sampled_before(tmp_path):
    starts = []
    for used in (0, 1):
        args = PodsConfig(**{**SETTINGS, "output_dir": str(tmp_path)})
        lora = LoraConfig(r=4, target_modules=["q_proj"])
        torch.manual_seed(used)
        starts.append(weights(PodsTrainer(MODEL, letters, args, PLAIN, peft_config=lora)))
    assert same(*starts)


def test_an_adapter_that_is_handed_over_resumes_beside_its_reference(tmp_path):
    """TRL adds the reference as a second adapter, which lies in a subfolder of a checkpoint."""

    def adapter():
        torch.manual_seed(0)
        base = transformers.AutoModelForCausalLM.from_pretrained(MODEL)
        return get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj"]))

    settings = {"beta": 0.1, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.1}
    whole = trainer_of(PodsTrainer, tmp_path / "a", model=adapter(), **settings)
    whole.train()
    resumed = trainer_of(PodsTrainer, tmp_path / "b", model=adapter(), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    assert same(weights(resumed), weights(whole))
    trained = {n for n, p in resumed.model.named_parameters() if p.requires_grad}
    assert trained == {n for n, p in whole.model.named_parameters() if p.requires_grad}


def test_a_reward_of_another_form_is_named(tmp_path):
    """Each form: tests/unit/test_scoring.py."""

    async def returns(**_):
        return [1.0] * 3

    trainer = trainer_of(PodsTrainer, tmp_path, rewards=returns, rollouts_per_prompt=8)
    with pytest.raises(RewardError, match="returns returned 3 values for 16 completions"):
        trainer.train()


@pytest.mark.parametrize(  # an epoch of three generations is three steps, or two
    ("algorithm", "accumulated", "kwargs", "step"),
    [("greso", 1, {"start": 0.3}, 3), ("dapo", 2, None, 4)],
)
def test_a_resume_is_exact(algorithm, accumulated, kwargs, step, tmp_path):
    settings = {
        "gradient_accumulation_steps": accumulated,
        "steps_per_generation": 1,
        "algorithm": algorithm,
        "rewards": parity,
        "correct": "parity",
        "num_generations": 2,
        "per_device_train_batch_size": 4,
        "max_steps": 6,
        "save_strategy": "steps",
        "save_steps": step,
        "algorithm_kwargs": kwargs,
    }
    straight = trainer_of(PodsTrainer, tmp_path, **settings)
    straight.train()
    assert straight.fresh_used > 0
    assert any(not visit.has_signal for visits in straight.history.values() for visit in visits)
    resumed = trainer_of(PodsTrainer, tmp_path / "resumed", **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert same(weights(straight), weights(resumed))
    assert (resumed.fresh_used, resumed.history) == (straight.fresh_used, straight.history)
    assert list(straight.newest.prompts) == list(resumed.newest.prompts)


def test_a_resume_that_starts_the_epoch_again_knows_its_questions(tmp_path):
    settings = {"algorithm": "grpo", "save_strategy": "steps", "save_steps": 4, "max_steps": 5}
    names = [None, "b", None, None, None, None]  # else named by the row
    settings["data"] = PLAIN.add_column("id", names)
    first = trainer_of(PodsTrainer, tmp_path, **settings)
    first.train()
    assert set(first.history) == {"0", "b", "2", "3", "4", "5"}
    resumed = trainer_of(PodsTrainer, tmp_path, **settings, ignore_data_skip=True)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    for prompt in resumed.newest.prompts:
        row = 1 if prompt == "b" else int(prompt)
        assert prompt.row["prompt"] == PLAIN[row]["prompt"]


def test_trls_parser_reads_the_config_which_a_checkpoint_holds(tmp_path):
    command = ["--output_dir", str(tmp_path), "--use_cpu", "--bf16", "false", "--algorithm", "dapo"]
    command += ["--rollouts_per_prompt", "3", "--algorithm_kwargs", '{"rounds": 2}']
    (args,) = TrlParser((PodsConfig,)).parse_args_and_config(command)
    assert (args.algorithm, args.algorithm_kwargs) == ("dapo", {"rounds": 2})
    assert args.rollouts_per_prompt == 3
    assert pickle.loads(pickle.dumps(args)) == args


# ---- rows that only fill the step --------------------------------------------------------------


class Likely(Scripted):
    """Every token has the log-probability -1."""

    def sample(self, wanted):
        return [
            replace(rollout, completion=replace(rollout.completion, logprobs=[-1.0] * len(ids)))
            for rollout in super().sample(wanted)
            for ids in [rollout.completion.token_ids]
        ]


three_of_each = partial(rows_of_each, count=3)
first_two = partial(rows_of_each, count=2)
none_at_all = partial(rows_of_each, count=0)


def filled(folder, algorithm, m, rows, **changes):
    """A trainer of one step of 2 m scripted rows, in micro-batches of `rows`."""
    settings = {
        "num_generations": m,
        "rollouts_per_prompt": m,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": 2 * m // rows,
        "max_steps": 1,
        "shuffle_dataset": False,
    }
    own = {"algorithm": algorithm, "sampler": Scripted}
    return trainer_of(PodsTrainer, folder, own=own, **settings, **changes)


def gradients(folder, algorithm, m, rows, **changes):
    """Of the first update of a policy in float64, which differs from the reference."""
    float64 = {"model": str(folder), "model_init_kwargs": {"dtype": "auto"}}
    trainer = filled(folder / "out", algorithm, m, rows, max_grad_norm=0, **float64, **changes)
    random, held = torch.Generator().manual_seed(3), {}
    for name, parameter in trainer.model.named_parameters():
        noise = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
        parameter.data += 0.05 * noise
        parameter.register_post_accumulate_grad_hook(
            lambda p, name=name: held.update({name: p.grad.clone()})  # the last micro-batch's stays
        )
    trainer.train()
    assert len(held) == len(list(trainer.model.parameters()))
    return held


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("small"))


def small_model(folder):
    """A model that computes in float64 throughout: no norm and no position in float32."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer()),
        n_embd=8,
        n_layer=1,
        n_head=2,
        n_positions=32,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    transformers.GPT2LMHeadModel(config).double().save_pretrained(folder)
    return folder


MASKED, KL, ENTROPY = {"mask_truncated_completions": True}, {"beta": 0.3}, {"entropy_coef": 0.1}
LOSSES = [  # rows of a micro-batch (0: the step is one), and settings
    ("grpo", 2, KL),
    ("grpo", 0, ENTROPY),
    ("dr_grpo", 0, ENTROPY | KL),
    ("dapo", 2, {}),
    ("dr_grpo", 2, KL),
    ("bnpo", 0, KL),
    ("luspo", 2, {}),
]
MORE_LOSSES = [  # tests/nightly/test_pods_trainer.py
    ("grpo", 2, MASKED),
    ("dapo", 0, ENTROPY | KL),
    ("bnpo", 0, ENTROPY | KL),
    ("dapo", 2, MASKED),
    ("sapo", 2, {}),
    ("cispo", 2, {}),
    ("vespo", 2, {}),
]


# Since 1.14 TRL takes log-probabilities from chunks of logits that it casts to float32, and sums
# the gradients of the last hidden states and of the LM head in float32, whatever the model is in.
HEAD_IN_FLOAT32 = find_spec("trl.kernels") is not None


def id_of(value):
    return "-".join(value) or "plain" if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("loss", "rows", "changes"), LOSSES, ids=id_of)
def test_rows_that_fill_the_step_are_in_no_loss_and_in_no_denominator(small, loss, rows, changes):
    filled_rows_count_nowhere(small, loss, rows, **changes)


def filled_rows_count_nowhere(small, loss, rows, **changes):
    """6 of 8 rows, and a step of these 6. What is in float32 is the same in both, except for the
    factor 8/6, whose relative rounding is at most 2**-24; sums in float64 add 1e-12. TRL's sums
    over tokens in float32 round at the size of the largest: 2**-21 is eight such roundings. Beside
    an entropy bonus each advantage, in float32, is scaled by itself."""
    exact = gradients(small, three_of_each, 3, rows or 6, loss_type=loss, **changes)
    filled = gradients(small, three_of_each, 4, rows or 8, loss_type=loss, **changes)
    largest = max(value.abs().max().item() for value in exact.values())
    assert largest > 1e-3
    rounding = 2**-21 if HEAD_IN_FLOAT32 or "entropy_coef" in changes else 1e-12
    assert {value.dtype for value in exact.values()} == {torch.float64}
    torch.testing.assert_close(filled, exact, rtol=2**-24, atol=rounding * largest)


def logs_of_a_step(folder, m, algorithm, rows=1, weights=1.0, **changes):
    """weights: factor of the base's."""
    trainer = filled(folder, algorithm, m, rows, **changes)
    with torch.no_grad():
        for name, parameter in trainer.model.named_parameters():
            if "lora" not in name:
                parameter *= weights
    trainer.train()
    return trainer.state.log_history[0]


def test_the_kl_of_rows_that_fill_does_not_overflow(tmp_path):
    """Log-probabilities of a row that is not read would differ by hundreds from the reference's."""
    logs = logs_of_a_step(tmp_path, 4, three_of_each, rows=8, weights=5.0, lora=True, beta=0.3)
    assert logs["kl"] == 0  # the adapter's first weights are those of the reference
    assert np.isfinite(logs["loss"])


@pytest.mark.parametrize("loss", ["grpo", "dapo", "bnpo", "dr_grpo"])
def test_beside_a_bonus_micro_batches_without_rows_are_in_no_mean(tmp_path, loss):
    """4 of 16 rows, each a micro-batch, and a step of these 4: equal losses, and equal logs."""
    changes = {"loss_type": loss, **ENTROPY, **KL, "rewards": first_token}
    exact = logs_of_a_step(tmp_path / "exact", 2, first_two, **changes)
    filled = logs_of_a_step(tmp_path / "filled", 8, first_two, **changes)
    names = ["loss", "entropy", "kl", "reward", "reward_std", "frac_reward_zero_std"]
    names += ["rewards/first_token/mean", "rewards/first_token/std", "clip_ratio/region_mean"]
    for name in names:
        assert filled[name] == pytest.approx(exact[name], rel=1e-5, abs=1e-9), name


@pytest.mark.parametrize(("loss", "bonus"), [("grpo", {}), ("dapo", {}), ("bnpo", ENTROPY)])
def test_a_routers_loss_is_its_mean_over_all_micro_batches(tmp_path, loss, bonus):
    """A router sees the rows that fill the step, too."""
    torch.manual_seed(0)
    config = transformers.Qwen2MoeConfig(
        vocab_size=len(tokenizer()),
        hidden_size=16,
        intermediate_size=16,
        moe_intermediate_size=8,
        shared_expert_intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
    )
    transformers.Qwen2MoeForCausalLM(config).save_pretrained(tmp_path / "moe")
    changes = {"model": str(tmp_path / "moe"), "router_aux_loss_coef": 1.0, **bonus}
    no_policy_loss = partial(first_two, advantages=np.zeros(4))
    logs = logs_of_a_step(tmp_path, 8, no_policy_loss, loss_type=loss, **changes)
    entropy = bonus.get("entropy_coef", 0) * logs["entropy"]
    assert logs["loss"] + entropy == pytest.approx(logs["aux_loss"], rel=0.1)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "bnpo"])
def test_a_step_without_rows_has_no_gradient(small, loss):
    held = gradients(small, none_at_all, 4, 8, loss_type=loss, beta=0.3)
    assert all((value == 0).all() for value in held.values())


def twice(step):
    yield step.prompts, step.m // 2
    return np.arange(len((yield step.prompts, step.m // 2)))


def uneven(step):
    counts = [step.m - 1, step.m + 1] * (step.P // 2)
    return np.arange(len((yield step.prompts, counts)))


twice.keeps_all = uneven.keeps_all = True


@pytest.mark.parametrize(("scale", "advantage"), [("none", "dr_grpo"), ("group", "kept")])
def test_an_algorithm_that_keeps_all_of_several_rounds_is_scaled_as_trl_is_told(
    scale, advantage, tmp_path
):
    settings = {"rollouts_per_prompt": 4, "scale_rewards": scale, "max_steps": 1}
    own = {"algorithm": twice}
    trainer = trainer_of(PodsTrainer, tmp_path, rewards=spread, own=own, **settings)
    trainer.train()
    batch, selection = trainer.newest.batch, trainer.newest.selection
    assert sorted(selection.kept) == [*range(len(batch))] == [*range(8)]
    expected = ADVANTAGE_FUNCTIONS[advantage](batch, np.arange(8))[selection.kept]
    assert selection.advantages == pytest.approx(expected, abs=1e-4)


def test_what_only_trls_own_advantages_read_is_refused_where_they_do_not_stand(tmp_path):
    settings = {"rollouts_per_prompt": 4, "max_steps": 1, "own": {"algorithm": uneven}}
    trainer_of(PodsTrainer, tmp_path, **settings).train()
    trainer = trainer_of(PodsTrainer, tmp_path, scale_rewards="none", **settings)
    line = "scale_rewards=none: algorithm=uneven does not read it; set advantage=dr_grpo"
    with pytest.raises(AlgorithmError, match=line):
        trainer.train()


def likely(step):
    batch = yield step.prompts, step.m
    return np.argsort(batch.logprobs)


likely.reads_logprobs = True


def unasked(step):
    batch = yield step.prompts, step.m
    return np.argsort(batch.logprobs)  # of None it is [0]


WRONG = [  # fields of PodsConfig, arguments of PodsTrainer
    ({"rollouts_per_prompt": 2}, {}, "num_generations=4: cannot keep more than"),
    ({"algorithm": "grpo_ga"}, {}, "grpo_ga trains on all; set num_generations=64"),
    ({"loss_type": "gspo"}, {}, "loss_type=gspo: must be one of grpo, .*vespo"),
    ({"scale_rewards": "batch"}, {}, "scale_rewards=batch: algorithm=pods does not read it; leave"),
    ({"scale_rewards": "none"}, {}, "scale_rewards=none: .*; set advantage=dr_grpo in its place"),
    (
        {"gradient_accumulation_steps": 8},  # 16 prompts a step, and the data set has 6
        {},
        "train_dataset: has 6 rows, and a step needs 16",
    ),
    ({"multi_objective_aggregation": "normalize_then_sum"}, {}, "normalize_then_sum: algorithm=p"),
    ({}, {"tools": [max]}, "tools: PodsTrainer has no multi-turn"),
    ({}, {"args": GRPOConfig("out", **SETTINGS)}, "args=GRPOConfig: must be a PodsConfig"),
    ({}, {"algorithm": lambda step: 1}, "no generator function"),
    ({"algorithm_kwargs": {"rounds": 1}}, {}, "algorithm=pods .*: cannot be called .*rounds"),
    ({"correct": "right"}, {}, "correct=right: no reward function; one of letters, or None"),
    ({}, {"reward_funcs": None}, "reward_funcs=None: a reward function is required"),
    (
        {},
        {"train_dataset": None},
        "train_dataset=None: a Dataset or an IterableDataset is required",
    ),
    ({"eval_strategy": "steps"}, {"eval_dataset": None}, "^eval_dataset=None: .* is required"),
    ({}, {"train_dataset": Dataset.from_dict({"q": ["1"]})}, "has no column prompt, but q"),
    ({}, {"train_dataset": Dataset.from_dict({})}, "train_dataset: has no rows"),
    ({}, {"train_dataset": DatasetDict(train=PLAIN)}, "train_dataset=DatasetDict: must be a Data"),
    (
        {"eval_strategy": "steps"},
        {"eval_dataset": {"a": PLAIN.remove_columns("prompt")}},
        "^a: has",
    ),
    ({"rule": max}, {}, "rule=<built-in function max>: Which m of n are kept: a name, or path/to"),
    ({"algorithm": "dapo", "rule": "random"}, {}, "rule=random: algorithm=dapo has no rule; leave"),
    ({}, {"algorithm": likely}, "likely reads log-prob.*; set use_vllm=True"),
    (
        {"algorithm": "dapo"},
        {"train_dataset": PLAIN.to_iterable_dataset()},
        "dapo failed at step .: a streamed data set has no fresh prompts",
    ),
    ({}, {"algorithm": unasked}, "reads batch.logprobs; write unasked.reads_logprobs = True below"),
]


@pytest.mark.parametrize(("values", "arguments", "message"), WRONG)
def test_what_does_not_fit_is_refused_in_one_line_before_the_model(values, arguments, message):
    settings = {**SETTINGS, **values}
    keys = {"reward_funcs": letters, "train_dataset": PLAIN, **arguments}
    with pytest.raises((ValueError, UserError), match=message) as raised:
        PodsTrainer("no/such/model", **{"args": PodsConfig("out", **settings), **keys})
    assert "\n" not in str(raised.value)


class Grader:
    config = "of a judge, not of a model"

    def __call__(self, completions, **_):
        return [float("a" in text) for text in completions]


def by_verdict(step, table):
    """Reads the verdicts of a grader that is an object, and a table of the questions' own names."""
    batch = yield step.prompts, step.m
    assert all(table[prompt] == prompt.row["bonus"] for prompt in step.prompts)
    return np.flatnonzero(batch.correct == batch.by_function["Grader"])[: step.budget]


@dataclass
class OwnConfig(PodsConfig):
    extra: int = 1


def test_a_script_may_add_fields_to_the_config():
    config = OwnConfig("out", **SETTINGS, extra=3)
    assert (config.extra, config.algorithm, config.scale_rewards) == (3, "pods", "group")


def test_prompts_and_graders_have_their_own_names_before_the_model_too(tmp_path):
    names = [f"q{row}" for row in range(len(PLAIN))]
    table = dict(zip(names, PLAIN["bonus"], strict=True))
    trainer = trainer_of(
        PodsTrainer,
        tmp_path,
        data=PLAIN.add_column("id", names),
        rewards=Grader(),
        correct="Grader",
        own={"algorithm": partial(by_verdict, table=table)},
    )
    trainer.train()
    assert trainer.history.keys() <= table.keys()


@pytest.mark.parametrize("second", [PLAIN, PLAIN.select([4, 3, 2])], ids=["the same", "another"])
def test_a_second_training_begins_anew_with_the_data_set_that_the_trainer_has(second, tmp_path):
    seen = {}
    for kind, changes in ((GRPOTrainer, {}), (PodsTrainer, {"algorithm": "grpo"})):
        trainer = trainer_of(kind, tmp_path / kind.__name__, **changes)
        trainer.train()
        trainer.train_dataset = second
        trainer.train()
        seen[kind] = weights(trainer)
    assert same(*seen.values())
    assert sum(map(len, trainer.history.values())) == 2 * SETTINGS["max_steps"]


class InOrder:
    def _get_train_sampler(self, dataset=None):
        return RepeatSampler(self.train_dataset, self.num_generations, batch_size=2, shuffle=False)


class Loader:
    def get_train_dataloader(self):
        rows = [self.train_dataset[i] for i in (5, 5, 5, 5, 3, 3, 3, 3)]
        return torch.utils.data.DataLoader(rows, batch_size=8, collate_fn=list)


class Squared:
    def _calculate_rewards(self, *args):
        return super()._calculate_rewards(*args) ** 2


@pytest.mark.parametrize("own", [InOrder, Loader, Squared])
def test_what_a_subclass_overrides_counts_as_in_trls_trainer(own, tmp_path):
    theirs, ours = (type(own.__name__, (own, kind), {}) for kind in (GRPOTrainer, PodsTrainer))
    theirs = trainer_of(theirs, tmp_path)
    theirs.train()
    ours = trainer_of(ours, tmp_path, algorithm="grpo")
    ours.train()
    assert same(weights(theirs), weights(ours))
    assert ours.newest.batch.rewards.mean() == pytest.approx(theirs.state.log_history[3]["reward"])


def test_one_process_on_several_cards_is_refused(monkeypatch):
    """transformers would divide its batch among them, and TRL sample the rollouts of each."""
    monkeypatch.setattr(transformers.TrainingArguments, "n_gpu", 2)
    with pytest.raises(
        ValueError, match=r"n_gpu=2: .* accelerate launch.* CUDA_VISIBLE_DEVICES=0$"
    ):
        PodsConfig("out", **SETTINGS)
    unsloths = type("UnslothGRPOTrainer", (GRPOTrainer,), {})  # takes one card
    monkeypatch.setattr(trl, "GRPOTrainer", unsloths)
    assert PodsConfig("out", **SETTINGS).n_gpu == 2


def test_an_evaluation_by_trl_follows_a_step_with_the_engines_log_probabilities(tmp_path):
    """TRL corrects for them with use_vllm, which would be another generation here."""

    def trained(correction):
        trainer = trainer_of(
            PodsTrainer,
            tmp_path,
            rewards=parity,
            evaluated=True,
            rollouts_per_prompt=8,
            max_steps=2,
            eval_strategy="steps",
            eval_steps=1,
            per_device_eval_batch_size=24,
            vllm_importance_sampling_correction=correction,
            own={"sampler": Likely},
        )
        trainer.train()
        assert not trainer.use_vllm
        history = trainer.state.log_history
        assert sum("eval_loss" in line for line in history) == 2
        return weights(trainer), "sampling/importance_sampling_ratio/mean" in history[0]

    (corrected, ratio_logged), (plain, nothing_logged) = trained(True), trained(False)
    assert (ratio_logged, nothing_logged) == (True, False)
    assert not same(corrected, plain)


def test_a_generation_of_another_number_of_rollouts_is_refused(tmp_path):
    class Own(TrlSampler):
        def sample(self, wanted):
            return super().sample(wanted) * 2

    trainer = trainer_of(PodsTrainer, tmp_path, rollouts_per_prompt=8, own={"sampler": Own})
    with pytest.raises(ValueError, match=r"^sample returned 32 values, not 16$"):
        trainer.train()


def test_the_arguments_are_trls_and_ours():
    ours = set(inspect.signature(PodsTrainer.__init__).parameters)
    theirs = set(inspect.signature(GRPOTrainer.__init__).parameters)
    assert ours == theirs | {"algorithm", "sampler", "phase"}


def test_a_model_card_cites_the_paper(tmp_path):
    trainer = trainer_of(PodsTrainer, tmp_path)
    trainer.create_model_card(model_name="sums")
    card = (tmp_path / "README.md").read_text()
    assert "2504.13818" in card
    assert "pods" in card
