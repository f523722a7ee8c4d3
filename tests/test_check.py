"""A config that breaks a rule across keys is one line; settled sizes; names of runs.

Types and bounds of one key: tests/test_config.py.
"""

import copy
from pathlib import Path

import pytest

from pods.config.errors import UserError
from pods.config.keys import reward_weights
from pods.training.check import check, settle
from tests.configs import compose, get

OWN = "task=own task.source=q.jsonl task.question=q task.answer=a "
FUNCTIONS = """
def rule(rewards, m, rng, k=1): ...
def advantage(batch, kept, scale=1.0): ...
def reward(completions, **columns): ...
def gold(row): ...
number = 3
"""


@pytest.fixture(autouse=True)
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """my.py in the working folder."""
    (tmp_path / "my.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ("kept_per_prompt=128", ["kept_per_prompt=128", "rollouts_per_prompt=32", "32 or less"]),
        ("kept_per_prompt=12 micro_batch_size=5", ["micro_batch_size=5", "the 12 rows", "e.g. 1"]),
        ("algorithm=grpo rollouts_per_prompt=64", ["algorithm=grpo", "64", "16", "pods"]),
        ("algorithm=dapo rollouts_per_prompt=32", ["rollouts_per_prompt=32", "trains on every"]),
        ("rule=all", ["rule=all", "kept_per_prompt=16", "set 32", "max_variance"]),
        ("rule.name=best", ["rule.name=best", "percentile", "path/to/file.py:function"]),
        ("algorithm.name=best", ["algorithm.name=best", "greso", "speed"]),
        ("algorithm.name=my.py:rule", ["algorithm.name=my.py:rule", "must yield"]),
        ("algorithm=dapo algorithm.params.turns=1", ["params={'turns': 1}", "are: rounds"]),
        ("algorithm=dapo rule=random", ["rule=random: algorithm=dapo", "algorithm=pods"]),
        ("algorithm=d3s advantage=rloo", ["advantage=rloo: algorithm=d3s", "advantage=kept"]),
        ("rule.params.k=3", ["rule.params={'k': 3}", "unexpected keyword argument 'k'"]),
        ("advantage.name=my.py:reward", ["advantage.name=my.py:reward", "batch"]),
        ("budget.train_seconds=null", ["max_steps=null", "needs an end"]),
        (
            "optimizer.schedule=cosine optimizer.schedule_by=steps",
            ["optimizer.schedule=cosine", "max_steps", "optimizer.schedule_by=seconds"],
        ),
        (
            "optimizer.schedule_by=seconds budget.train_seconds=null max_steps=9",
            ["optimizer.schedule_by=seconds", "budget.train_seconds", "schedule_by=steps"],
        ),
        (
            "optimizer.schedule=cosine optimizer.warmup_steps=1",
            ["optimizer.warmup_steps=1.0", "share of budget.train_seconds", "below 1"],
        ),
        ("optimizer.betas=[0.9]", ["optimizer.betas=[0.9]", "at least 2"]),
        ("evaluation.stop_at=0.8 evaluation.every_seconds=9", ["stop_at=0.8", "split=validation"]),
        ("updates_per_generation=2 max_steps=5", ["max_steps=5", "multiple", "=2", "set e.g. 6"]),
        ("updates_per_generation=2 checkpoint.every_steps=3", ["checkpoint.every_steps=3", "4"]),
        ("trl.num_generations=8", ["trl.num_generations=8", "unknown"]),
        ("trl={deltta:4.0}", ["trl.deltta=4.0", "trl.delta?"]),
        ("run=a/b", ["run=a/b", "folder name"]),
        ("rewards.weights.brevity=1", ["rewards.weights.brevity=1.0", "correctness, format, tags"]),
        ("rewards.weights={correctness:0,format:0,tags:0}", ["rewards.weights", "above 0"]),
        ("rewards.functions.tags=my.py:reward", ["rewards.functions.tags", "other than"]),
        ("rewards.functions.a-b=my.py:reward", ["rewards.functions.a-b", "identifier"]),
        ("rewards.functions.brevity=no.py:f", ["brevity=no.py:f", "no file no.py"]),
        (OWN + "task.gold=my.py:none", ["task.gold=my.py:none", "not defined"]),
        ("task.kind=math", ["task.kind=math", "only task=own"]),
        ("task=own", ["task.source=None", "task=own needs it"]),
        ("task.name=poems", ["task=poems", "gsm8k"]),
        (
            "engine=trl engine.vllm_mode=server rollouts_per_prompt=40",
            ["rollouts_per_prompt=40", "vLLM server", "multiple of 16"],
        ),
        (
            "engine=trl engine.vllm_mode=none sampling.stop=[end]",
            ["sampling.stop=['end']", "engine.vllm_mode=none", "engine=transformers"],
        ),
    ],
)
def test_a_broken_rule_is_named(overrides, parts):
    with pytest.raises(UserError) as error:
        compose(*overrides.split())
    line = str(error.value)
    assert "\n" not in line
    assert [part for part in parts if part not in line] == [], line


@pytest.mark.parametrize(
    "overrides",
    [
        "rule.name=my.py:rule rule.params.k=3",
        "algorithm=speed rollouts_per_prompt=16 kept_per_prompt=8 prompts_per_step=4",
        "advantage.name=my.py:advantage advantage.params.scale=2",
        "rewards.functions.brevity=my.py:reward rewards.weights={correctness:0}",
        "rewards.functions.brevity=my.py:reward rewards.weights.brevity=-0.5",
        OWN + "task.gold=my.py:gold",
        "engine=trl engine.vllm_mode=server rollouts_per_prompt=64",
        "engine=trl sampling.stop=[end]",
        "optimizer.schedule=cosine optimizer.warmup_steps=0.5",
    ],
)
def test_functions_of_the_user_and_engines_pass(overrides):
    config = compose(*overrides.split())
    key, _, value = overrides.split()[0].partition("=")
    if key.endswith(".name"):
        assert get(config, key) == value


def test_a_reward_function_without_a_weight_counts_once():
    config = compose("rewards.functions.brevity=my.py:reward")
    assert reward_weights(config.rewards) == dict.fromkeys(
        ("brevity", "correctness", "format", "tags"), 1.0
    )


@pytest.mark.parametrize(
    ("overrides", "n", "m", "size", "rule"),
    [
        ("", 32, 16, 16, "max_variance"),
        ("algorithm=grpo", 16, 16, 16, "all"),
        ("algorithm=grpo_ga", 32, 32, 16, "all"),
        ("algorithm=grpo_ga rollouts_per_prompt=8 kept_per_prompt=4", 8, 8, 4, "all"),
        ("rollouts_per_prompt=8 kept_per_prompt=4", 8, 4, 4, "max_variance"),
        ("prompts_per_step=8 rollouts_per_prompt=4 kept_per_prompt=2", 4, 2, 16, "max_variance"),
        ("algorithm=grpo kept_per_prompt=32", 32, 32, 16, "all"),
        ("rule=random kept_per_prompt=8 micro_batch_size=2", 32, 8, 2, "random"),
    ],
)
def test_algorithms_settle_n_m_and_the_micro_batch(overrides, n, m, size, rule):
    config = compose(*overrides.split())
    sizes = (config.rollouts_per_prompt, config.kept_per_prompt, config.micro_batch_size)
    assert (*sizes, config.rule.name) == (n, m, size, rule)


@pytest.mark.parametrize(
    ("overrides", "follows"),
    [
        ("", "steps"),  # constant: nothing to follow, and a resume may replace budget by max_steps
        ("optimizer.schedule=cosine", "seconds"),  # the quickstart ends by time
        ("optimizer.schedule=cosine max_steps=9", "steps"),
        ("optimizer.schedule=cosine max_steps=9 optimizer.schedule_by=seconds", "seconds"),
        ("optimizer.schedule=linear max_steps=9 budget.train_seconds=null", "steps"),
        ("experiment=gsm8k_h100", "seconds"),
    ],
)
def test_a_schedule_follows_what_ends_the_run(overrides, follows):
    assert compose(*overrides.split()).optimizer.schedule_by == follows


def test_settling_twice_and_checking_change_nothing():
    config = compose("algorithm=grpo_ga", "rollouts_per_prompt=8", "kept_per_prompt=4")
    before = copy.deepcopy(config)
    settle(config)
    check(config)
    assert config == before


def test_the_algorithm_changes_nothing_else():
    configs = [compose(f"algorithm={name}", "run=same") for name in ("grpo", "grpo_ga", "pods")]
    for config in configs:
        config.rollouts_per_prompt = config.kept_per_prompt = 2
        config.algorithm.name = config.rule.name = "any"
    assert configs[0] == configs[1] == configs[2]


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ("seed=1", "quickstart-pods-max_variance-n32-m16-seed1"),
        ("algorithm=grpo", "quickstart-grpo-all-n16-m16-seed0"),
        ("advantage=rloo", "quickstart-pods-max_variance-rloo-n32-m16-seed0"),
        ("rule.name=my.py:rule", "quickstart-pods-rule-n32-m16-seed0"),
        ("algorithm=dapo algorithm.params.rounds=2", "quickstart-dapo-rounds2-n16-m16-seed0"),
        (
            "rewards.functions.brevity=my.py:reward",
            "quickstart-pods-max_variance-brevity-n32-m16-seed0",
        ),
        (OWN + "task.gold=boxed", "quickstart-pods-max_variance-own-n32-m16-seed0"),
        ("advantage.name=my.py:advantage", "quickstart-pods-max_variance-advantage-n32-m16-seed0"),
    ],
)
def test_runs_with_other_settings_have_other_names(overrides, name):
    assert compose(*overrides.split()).run == name
