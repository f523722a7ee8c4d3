"""A config that breaks a rule across keys is one line; settled sizes and schedules.

Types and bounds of one key: tests/test_config.py.
"""

from pathlib import Path

import pytest

from pods.config.errors import UserError
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
        ("kept_per_prompt=12 micro_batch_size=5", ["micro_batch_size=5", "= 12 rows", "e.g. 1"]),
        ("algorithm=grpo rollouts_per_prompt=64", ["algorithm=grpo", "64", "16", "pods"]),
        ("rule=all", ["rule=all", "kept_per_prompt=16", "set 32", "max_variance"]),
        ("rule.name=best", ["rule.name=best", "percentile", "path/to/file.py:function"]),
        ("algorithm.name=best", ["algorithm.name=best", "greso", "speed"]),
        ("algorithm.name=my.py:rule", ["algorithm.name=my.py:rule", "must yield"]),
        ("algorithm=dapo algorithm.params.turns=1", ["params={'turns': 1}", "are: rounds"]),
        ("algorithm=dapo rule=random", ["rule=random: algorithm=dapo", "algorithm=pods"]),
        ("algorithm=d3s advantage=rloo", ["advantage=rloo: algorithm=d3s", "advantage=kept"]),
        ("rule.params.k=3", ["rule.params={'k': 3}", "unexpected keyword argument 'k'"]),
        ("budget.train_seconds=null", ["max_steps=null", "needs an end"]),
        ("optimizer.schedule=cosine optimizer.schedule_by=steps", ["cosine: needs max_steps"]),
        ("optimizer.schedule_by=seconds budget.train_seconds=null max_steps=9",
         ["optimizer.schedule_by=seconds: needs budget.train_seconds"]),
        ("optimizer.schedule=cosine optimizer.warmup_steps=1", ["warmup_steps=1.0", "below 1"]),
        ("updates_per_generation=2 max_steps=5", ["max_steps=5", "multiple", "=2", "set e.g. 6"]),
        ("updates_per_generation=2 checkpoint.every_steps=3", ["checkpoint.every_steps=3", "4"]),
        ("trl={deltta:4.0}", ["trl.deltta=4.0", "trl.delta?"]),
        ("run=a/b", ["run=a/b", "folder name"]),
        ("rewards.weights.brevity=1", ["rewards.weights.brevity=1.0", "correctness, format, tags"]),
        ("rewards.weights={correctness:0,format:0,tags:0}", ["rewards.weights", "above 0"]),
        ("rewards.functions.tags=my.py:reward", ["rewards.functions.tags", "other than"]),
        ("rewards.functions.a-b=my.py:reward", ["rewards.functions.a-b", "identifier"]),
        (OWN + "task.gold=my.py:none", ["task.gold=my.py:none", "no function none"]),
        ("task=own", ["task.source=None", "task=own needs it"]),
        ("engine=trl engine.vllm_mode=server rollouts_per_prompt=40", ["=40", "multiple of 16"]),
        ("engine=trl engine.vllm_mode=none sampling.stop=[end]", ["['end']", "vllm_mode=none"]),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(overrides, parts):
    with pytest.raises(UserError) as error:
        compose(*overrides.split())
    assert [part for part in parts if part not in str(error.value)] == []
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [
        "rule.name=my.py:rule rule.params.k=3",
        "algorithm=speed rollouts_per_prompt=16 kept_per_prompt=8 prompts_per_step=4",
        "rewards.functions.brevity=my.py:reward rewards.weights={correctness:0}",
        "rewards.functions.brevity=my.py:reward rewards.weights.brevity=-0.5",
        OWN + "task.gold=my.py:gold",
        "engine=trl engine.vllm_mode=server rollouts_per_prompt=64",
        "optimizer.schedule=cosine optimizer.warmup_steps=0.5",
    ],
)
def test_functions_of_the_user_and_engines_pass(overrides):
    config = compose(*overrides.split())
    key, _, value = overrides.split()[0].partition("=")
    if key.endswith(".name"):
        assert get(config, key) == value


def test_algorithms_settle_n_m_and_the_micro_batch():
    for overrides, *expected in (
        ("", 32, 16, 16, "max_variance"),
        ("algorithm=grpo", 16, 16, 16, "all"),
        ("algorithm=grpo_ga", 32, 32, 16, "all"),
        ("algorithm=grpo_ga rollouts_per_prompt=8 kept_per_prompt=4", 8, 8, 4, "all"),
        ("prompts_per_step=8 rollouts_per_prompt=4 kept_per_prompt=2", 4, 2, 16, "max_variance"),
        ("algorithm=grpo kept_per_prompt=32", 32, 32, 16, "all"),
    ):
        config = compose(*overrides.split())
        sizes = [config.rollouts_per_prompt, config.kept_per_prompt, config.micro_batch_size]
        assert [*sizes, config.rule.name] == expected, overrides


def test_a_schedule_follows_what_ends_the_run():
    for overrides, follows in (
        ("", "steps"),  # constant: nothing to follow, and a resume may replace budget by max_steps
        ("optimizer.schedule=cosine", "seconds"),  # the quickstart ends by time
        ("optimizer.schedule=cosine max_steps=9", "steps"),
        ("optimizer.schedule=linear max_steps=9 budget.train_seconds=null", "steps"),
        ("experiment=gsm8k_h100", "seconds"),
    ):
        assert compose(*overrides.split()).optimizer.schedule_by == follows, overrides
