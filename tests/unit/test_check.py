"""Rules across keys, resolved sizes and schedules; test_config.py has the bounds of one key."""

from dataclasses import fields
from textwrap import dedent

import pytest
from trl import GRPOConfig

from pods.algorithms import ALGORITHMS
from pods.config import functions as user_functions
from pods.config.errors import UserError
from pods.config.keys import FACTS
from pods.pods_config import LOSSES
from pods.training.check import check_algorithm
from tests.configs import compose

OWN = "task=own task.source=org/data task.question=q task.answer=a"
FUNCTIONS = ("rule(rewards, m, rng, k=1)", "reward(completions, **columns)", "gold(row)")


@pytest.fixture(autouse=True)
def functions(tmp_path, monkeypatch):
    text = "".join(f"def {function}: ...\n" for function in FUNCTIONS)
    (tmp_path / "my.py").write_text(f"{text}class Engine:\n    def generate(self, works): ...\n")
    monkeypatch.chdir(tmp_path)


BROKEN = {  # overrides: what the line says
    "kept_per_prompt=128": "kept_per_prompt=128",
    "kept_per_prompt=3 micro_batch_size=5": "micro_batch_size=5",
    "kept_per_prompt=3 prompts_per_step=5 micro_batch_size=4": "set e.g. 3",
    "lora.alpha=null": "lora.alpha=null",
    "lora.rank=null model.load_in_4bit=true": "model.load_in_4bit=true",
    f"run={'n' * 201}": "has 201 bytes",
    "rule=all": "rule=all",
    "rule=best": "rule=best",
    "algorithm=best": "algorithm=best",
    "algorithm=my.py:rule": "algorithm=my.py:rule",
    "algorithm=dapo algorithm_kwargs.turns=1": "algorithm_kwargs={'turns': 1}",
    "algorithm=dapo rule=random": "rule=random: algorithm=dapo",
    "algorithm=d3s advantage=rloo": "advantage=rloo: algorithm=d3s",
    "rule_kwargs.k=3": "rule_kwargs={'k': 3}",
    "budget.train_seconds=null": "max_steps=null",
    "optimizer.schedule=cosine optimizer.schedule_by=steps": "cosine: needs max_steps",
    "optimizer.schedule_by=seconds budget.train_seconds=null max_steps=9": "budget.train_seconds",
    "optimizer.schedule=cosine optimizer.warmup_steps=1": "warmup_steps=1.0",
    "updates_per_generation=2 max_steps=5": "max_steps=5",
    "updates_per_generation=2 checkpoint.every_steps=3": "checkpoint.every_steps=3",
    "engine=trl trl.vllm_mode=none": "trl.vllm_mode=none",
    "run=a/b": "run=a/b",
    "rewards.weights.brevity=1": "rewards.weights.brevity=1.0",
    "rewards.weights={correctness:0,format:0,tags:0}": "rewards.weights",
    "rewards.functions.tags=my.py:reward": "rewards.functions.tags",
    "rewards.functions.a-b=my.py:reward": "rewards.functions.a-b",
    f"{OWN} task.gold=my.py:none": "task.gold=my.py:none",
    "task=own": "task.source=None",
    f"{OWN} task.question=": "task.question=: task=own needs it",
    "rewards.functions.a=my.py:none": "rewards.functions.a=my.py:none",
    "engine=trl trl.vllm_mode=server rollouts_per_prompt=10": "multiple of 4",
    "engine=my.py:Engine": "engine=my.py:Engine: Engine has no __enter__",
    "model.name=a/b": "model.name=a/b",
    "engine=trl trl.use_vllm=false sampling.stop=[end]": "sampling.stop=['end']",
}


@pytest.mark.parametrize("overrides", BROKEN)
def test_a_broken_rule_is_named(overrides):
    with pytest.raises(UserError) as error:
        compose(*overrides.split())
    assert BROKEN[overrides] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("deltta=4.0", "did you mean delta?"),
        ("delta=four", "must be a valid number"),
        ("top_p=0.5", "set sampling.top_p"),
        ("use_cpu=True", "the machine decides it; leave it out"),
        ("fp16=True", "train.py needs false; leave it out"),
    ],
)
def test_an_argument_of_trl_that_it_lacks_or_that_a_key_sets_is_refused(override, remedy):
    from pods.training import trl_keys

    with pytest.raises(UserError) as error:
        trl_keys.refuse_unknown(compose(f"trl.{override}"))
    assert str(error.value).lower().startswith(f"trl.{override}: ".lower())
    assert str(error.value).endswith(remedy)


def test_every_argument_of_trl_beside_our_keys_exists():
    known = {field.name for field in fields(GRPOConfig)}
    assert {name for _, facts in FACTS for name in facts.trl} <= known


def test_every_loss_of_trl_can_be_chosen():
    assert {compose(f"loss.type={loss}").loss.type for loss in LOSSES} == {*LOSSES}


def test_arguments_of_trl_are_taken_by_its_names():
    from pods.training import trl_keys

    config = compose("trl={delta: 4.0, optim_args: a, lr_scheduler_kwargs: {a: 1}}")
    trl_keys.refuse_unknown(config)
    assert config.trl["delta"] == 4.0
    assert config.trl["use_bias_correction_kl"] is False  # of config/train.yaml


@pytest.mark.parametrize("weights", ["correctness: 0", "brevity: -0.5"])
def test_a_reward_of_the_user_may_have_any_weight(weights):
    name, value = weights.split(": ")
    config = compose("rewards.functions.brevity=my.py:reward", f"rewards.weights={{{weights}}}")
    assert config.rewards.weights[name] == float(value)


OWN_ALGORITHM = """
def algorithm(step):
    batch = yield step.prompts, step.m
    return range(len(batch))

algorithm.samples_m = True
"""


@pytest.mark.parametrize(
    ("overrides", "n", "m", "micro_batch_size"),
    [
        ("", 8, 4, 32),
        ("rollouts_per_prompt=4 kept_per_prompt=2", 4, 2, 16),
        ("algorithm=grpo rollouts_per_prompt=64", 4, 4, 32),
        ("algorithm=own.py:algorithm", 4, 4, 32),
        ("algorithm=grpo_ga", 8, 8, 32),
        ("algorithm=grpo_ga prompts_per_step=1", 8, 8, 8),
        ("algorithm=speed rollouts_per_prompt=16 kept_per_prompt=8", 16, 8, 32),
    ],
)
def test_an_algorithm_resolves_n_m_the_micro_batch_and_the_rule(
    overrides, n, m, micro_batch_size, tmp_path
):
    (tmp_path / "own.py").write_text(OWN_ALGORITHM)
    config = compose(*overrides.split())
    assert (config.rollouts_per_prompt, config.kept_per_prompt) == (n, m)
    assert config.micro_batch_size == micro_batch_size
    assert config.rule == (None if "algorithm" in overrides else "max_variance")


@pytest.mark.parametrize(
    ("overrides", "follows"),
    [
        ("optimizer.schedule=constant", "steps"),  # follows nothing: max_steps may replace a budget
        ("", "seconds"),  # the quickstart decays, and ends by time
        ("optimizer.schedule=cosine max_steps=9", "steps"),
        ("optimizer.schedule=linear max_steps=9 budget.train_seconds=null", "steps"),
        ("experiment=gsm8k_h100", "seconds"),
    ],
)
def test_a_schedule_follows_what_ends_the_run(overrides, follows):
    assert compose(*overrides.split()).optimizer.schedule_by == follows


@pytest.mark.parametrize(
    ("prices", "part"),
    [
        ("name: a, fixed: -1, generate: 0, update: 1", "fixed=-1"),
        ("name: a, fixed: 1, generate: 0, update: 1, round_: 1", "round_=1"),
        ("name: a, fixed: 1, generate: 0", "update: has no value"),
        ("name: a, fixed: 0, generate: 0, update: 0", "update=0"),  # no budget would end the run
    ],
)
def test_prices_that_cannot_be_used_are_named(prices, part):
    with pytest.raises(UserError, match=f"^clock: {part}"):
        compose(f"clock={{{prices}}}")


def test_prices_of_ones_own_are_in_the_saved_config():
    prices = compose("clock={name: mine, fixed: 1, generate: 5e-1, update: 2.0}").clock
    assert prices.model_dump() == {
        "name": "mine",
        "fixed": 1,
        "round": 0.0,
        "generate": 0.5,
        "update": 2.0,
        "tokens": None,
    }


WRONG = {  # overrides, what the function does, and what the line says
    "reads a batch without grades": (
        "algorithm=own.py:f rewards.weights.correctness=0",
        """
        def f(step):
            batch = yield step.prompts, step.n
            return batch.correct[:2]
        """,
        "algorithm f failed at step 0 at own.py:4: TypeError",
    ),
    "fails at a group without signal": (
        "algorithm=own.py:f",
        """
        def f(step):
            batch = yield step.prompts, step.n
            good = [group[batch.correct[group]] for group in batch.groups]
            return [int(group[0]) for group in good]
        """,
        "algorithm f failed at step 0 at own.py:5: IndexError",
    ),
    "keeps a state in the history": (  # of a checkpoint that could not be read again
        "algorithm=own.py:f",
        """
        def f(step):
            step.history["mine"] = {"count": 1}
            batch = yield step.prompts, step.m
            return range(len(batch))
        """,
        "algorithm f failed at step 0 at own.py:3: TypeError",
    ),
    "adds to the visits of a question": (
        "algorithm=own.py:f",
        """
        def f(step):
            for visits in step.history.values():
                visits.append(0.5)
            batch = yield step.prompts, step.m
            return range(len(batch))
        """,
        "algorithm f failed at step 1 at own.py:4: AttributeError",
    ),
    "a rule": (
        "rule=own.py:f",
        """
        def f(rewards, m, rng):
            return rewards.nonzero()[0][99]
        """,
        " at own.py:3: ",
    ),
    "an advantage for groups of one size": (
        "algorithm=speed advantage=own.py:f",
        """
        def f(batch, kept):
            return batch.rewards.reshape(8, -1)[:, :4].ravel()
        """,
        " at own.py:3: cannot reshape array",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_function_is_tried_on_made_up_rollouts(name, tmp_path):
    overrides, body, line = WRONG[name]
    (tmp_path / "own.py").write_text(dedent(body))
    user_functions._module.cache_clear()
    config = compose(*overrides.split())
    with pytest.raises(UserError) as error:
        check_algorithm(config)
    assert line in str(error.value)
    assert str(error.value).endswith(" (made-up rollouts, before the model loads)")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(("grades", "P"), [(True, 1), (False, 8)], ids=["graded", "not graded"])
def test_every_built_in_algorithm_passes(name, grades, P):
    weight = f"rewards.weights.correctness={int(grades)}"
    check_algorithm(
        compose(f"algorithm={name}", f"prompts_per_step={P}", "micro_batch_size=1", weight)
    )


def test_an_algorithm_may_read_log_probabilities_columns_and_the_file_beside_it(tmp_path):
    (tmp_path / "lowest_level.py").write_text("LOWEST = 3")
    body = """
    from lowest_level import LOWEST

    def f(step):
        batch = yield step.prompts, step.n
        levels = [prompt.row["level"] for prompt in step.prompts]
        assert min(levels) == LOWEST
        return batch.logprobs.argsort()[: step.budget]

    f.reads_logprobs = True
    """
    (tmp_path / "own.py").write_text(dedent(body))
    user_functions._module.cache_clear()
    check_algorithm(compose("algorithm=own.py:f"), [{"level": 3}, {"level": 4}])
