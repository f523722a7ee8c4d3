"""Rules across keys, settled sizes and schedules; test_config.py has the bounds of one key."""

import pytest

from pods.config.errors import UserError
from tests.configs import compose

OWN = "task=own task.source=org/data task.question=q task.answer=a "
FUNCTIONS = ("rule(rewards, m, rng, k=1)", "reward(completions, **columns)", "gold(row)")


@pytest.fixture(autouse=True)
def functions(tmp_path, monkeypatch):
    (tmp_path / "my.py").write_text("".join(f"def {function}: ...\n" for function in FUNCTIONS))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ("kept_per_prompt=128", ["kept_per_prompt=128", "rollouts_per_prompt=8", "8 or less"]),
        ("kept_per_prompt=3 micro_batch_size=5", ["micro_batch_size=5", "= 24 rows", "e.g. 1"]),
        ("algorithm=grpo rollouts_per_prompt=64", ["algorithm=grpo", "=64", "set 4", "pods"]),
        ("rule=all", ["rule=all", "kept_per_prompt=4", "set 8", "max_variance"]),
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
        ("task=own", ["task.source=None: task=own needs it; set a JSONL file, folder or hub id"]),
        (OWN + "task.question=''", ["task.question=: task=own needs it; set one of its columns"]),
        ("rewards.functions.a=my.py:none", ["rewards.functions.a=my.py:none", "no function none"]),
        ("engine=trl engine.vllm_mode=server rollouts_per_prompt=10", ["=10", "multiple of 4"]),
        ("engine=trl engine.vllm_mode=none sampling.stop=[end]", ["['end']", "vllm_mode=none"]),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(overrides, parts):
    with pytest.raises(UserError) as error:
        compose(*overrides.split())
    assert [part for part in parts if part not in str(error.value)] == []
    assert "\n" not in str(error.value)


def test_a_reward_of_the_user_may_have_any_weight():
    for weights in ("{correctness:0}", "{brevity:-0.5}"):
        compose("rewards.functions.brevity=my.py:reward", f"rewards.weights={weights}")


def test_algorithms_settle_n_m_and_the_micro_batch():
    for overrides, *expected in (
        ("", 8, 4, 32, "max_variance"),
        ("algorithm=grpo", 4, 4, 32, "all"),
        ("algorithm=grpo_ga", 8, 8, 32, "all"),
        ("algorithm=grpo_ga prompts_per_step=1 kept_per_prompt=4", 8, 8, 4, "all"),
        ("rollouts_per_prompt=4 kept_per_prompt=2", 4, 2, 16, "max_variance"),
        ("algorithm=grpo kept_per_prompt=32", 32, 32, 32, "all"),
        ("algorithm=speed rollouts_per_prompt=16 kept_per_prompt=8", 16, 8, 32, "max_variance"),
    ):
        config = compose(*overrides.split())
        sizes = [config.rollouts_per_prompt, config.kept_per_prompt, config.micro_batch_size]
        assert [*sizes, config.rule.name] == expected, overrides


def test_a_schedule_follows_what_ends_the_run():
    for overrides, follows in (
        ("optimizer.schedule=constant", "steps"),  # follows nothing: max_steps may replace a budget
        ("", "seconds"),  # the quickstart decays, and ends by time
        ("optimizer.schedule=cosine max_steps=9", "steps"),
        ("optimizer.schedule=linear max_steps=9 budget.train_seconds=null", "steps"),
        ("experiment=gsm8k_h100", "seconds"),
    ):
        assert compose(*overrides.split()).optimizer.schedule_by == follows, overrides
