"""A wrong config is one line with key, value, rule and remedy, exit code 2, and nothing written."""

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
def batch_rule(batch, budget, rng): ...
def needs_k(rewards, m, rng, k): ...
def other(values, m, rng): ...
def too_short(rewards, m): ...
def advantage(batch, kept, scale=1.0): ...
def reward(completions, **columns): ...
def gold(row): ...
number = 3
class Rule:
    def __call__(self, rewards, m, rng, decay=0.5): ...
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """my.py in the working folder."""
    (tmp_path / "my.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("kept_per_prompt=128", ["kept_per_prompt=128", "rollouts_per_prompt=32", "32 or less"]),
        ("kept_per_prompt=12 micro_batch_size=5", ["micro_batch_size=5", "divide", "12"]),
        ("algorithm=grpo rollouts_per_prompt=64", ["algorithm=grpo", "64", "16", "pods"]),
        ("rule=all", ["rule=all", "kept_per_prompt=32", "max_variance"]),
        ("rule.name=best", ["rule.name=best", "percentile", "path/to/file.py:function"]),
        ("advantage.name=best", ["advantage.name=best", "rloo", "path/to/file.py:function"]),
        ("kept_per_prompt=1", ["kept_per_prompt=1", "2 or more"]),
        ("kept_per_prompt=0", ["kept_per_prompt=0", "greater than 0"]),
        ("budget.train_seconds=null", ["max_steps=null", "needs an end"]),
        ("budget.train_seconds=0", ["budget.train_seconds=0", "greater than 0"]),
        (
            "optimizer.schedule=cosine optimizer.schedule_by=steps",
            ["optimizer.schedule=cosine", "max_steps", "optimizer.schedule_by=seconds"],
        ),
        (
            "optimizer.schedule_by=seconds budget.train_seconds=null max_steps=9",
            ["optimizer.schedule_by=seconds", "budget.train_seconds", "schedule_by=steps"],
        ),
        (
            "optimizer.schedule=cosine optimizer.warmup_steps=5",
            ["optimizer.warmup_steps=5", "share of budget.train_seconds", "below 1"],
        ),
        ("optimizer.schedule=step", ["optimizer.schedule=step", "constant, linear, cosine"]),
        ("sampling.temperature=0", ["sampling.temperature=0", "greater than 0"]),
        ("sampling.top_p=1.5", ["sampling.top_p=1.5", "(0, 1]"]),
        ("sampling.top_k=-1", ["sampling.top_k=-1", "0 or more"]),
        ("rewards.version=v3", ["rewards.version=v3", "v1, v1-correctness, v2, strict"]),
        ("loss.type=ppo", ["loss.type=ppo", "grpo, dapo"]),
        ("evaluation.stop_at=0.8 evaluation.every_seconds=9", ["stop_at=0.8", "split=validation"]),
        ("evaluation.stop_at=0.8 evaluation.split=validation", ["stop_at=0.8", "every_seconds"]),
        ("evaluation.stop_at=80", ["evaluation.stop_at=80", "(0, 1]"]),
        ("loss.epsilon_high=0", ["loss.epsilon_high=0", "greater than 0"]),
        ("loss.importance_sampling_level=word", ["level=word", "token, sequence"]),
        ("loss.top_entropy_quantile=0", ["top_entropy_quantile=0", "(0, 1]"]),
        ("updates_per_generation=2 max_steps=5", ["max_steps=5", "multiple", "=2", "set e.g. 6"]),
        ("updates_per_generation=2 checkpoint.every_steps=3", ["checkpoint.every_steps=3", "4"]),
        ("trl.num_generations=8", ["trl.num_generations=8", "another key sets it", "delta"]),
        ("trl={deltta:4.0}", ["trl.deltta=4.0", "delta"]),
        ("trl.delta=big", ["trl.delta=big", "must be a number"]),
        ("seed=-1", ["seed=-1", "0 or more"]),
        ("run=a/b", ["run=a/b", "folder name"]),
        ("optimizer.learning_rate=nan", ["optimizer.learning_rate=nan", "a finite number"]),
        ("optimizer.learning_rate=inf", ["optimizer.learning_rate=inf", "a finite number"]),
        ("rewards.weights.brevity=1", ["rewards.weights.brevity=1.0", "correctness, format, tags"]),
        ("rewards.weights.tags=nan", ["rewards.weights.tags=nan", "finite"]),
        ("rewards.weights={correctness:0,format:0,tags:0}", ["rewards.weights", "above 0"]),
        ("rewards.functions.tags=my.py:reward", ["rewards.functions.tags", "other than"]),
        ("rewards.functions.a-b=my.py:reward", ["rewards.functions.a-b", "identifier"]),
        ("rewards.functions.brevity=no.py:f", ["brevity=no.py:f", "no file no.py"]),
        ("rewards.functions.brevity=my.py:none", ["my.py:none", "not defined"]),
        ("rewards.functions.brevity=my.py:number", ["my.py:number", "is no function"]),
        ("rewards.functions.brevity=brevity", ["functions.brevity=brevity", "file.py:function"]),
        (OWN + "task.gold=my.py:none", ["task.gold=my.py:none", "not defined"]),
        ("task.gold=last", ["task.gold=last", "as_is, after_hashes, boxed"]),
        ("task.kind=poem", ["task.kind=poem", "math, choice"]),
        ("task.kind=math", ["task.kind=math", "only task=own"]),
        ("task=own", ["task.source=None", "task=own needs it"]),
        ("task.name=poems", ["task=poems", "gsm8k"]),
        ("task.style=poem", ["task.style=poem", "instruct, base"]),
        ("optimizer.betas=[0.9]", ["optimizer.betas=[0.9]", "two numbers"]),
        ("engine.name=tgi", ["engine.name=tgi", "auto, transformers, vllm, unsloth, trl"]),
        ("engine.vllm_mode=on", ["engine.vllm_mode=on", "auto, colocate, server, none"]),
        ("engine.check_every=0", ["engine.check_every=0", "1 or more"]),
        ("engine.gpu_memory_utilization=2", ["gpu_memory_utilization=2", "(0, 1]"]),
        (
            "engine=trl engine.vllm_mode=server rollouts_per_prompt=40",
            ["rollouts_per_prompt=40", "vLLM server", "multiple of 16"],
        ),
        (
            "engine=trl engine.vllm_mode=none sampling.stop=[end]",
            ["sampling.stop=['end']", "engine.vllm_mode=none", "engine=transformers"],
        ),
        ("rule.params.k=3", ["rule.params={'k': 3}", "unexpected keyword argument 'k'"]),
        ("rule.name=my.py:rule rule.params.j=3", ["rule.params={'j': 3}", "my.py:rule", "'j'"]),
        ("rule.name=my.py:needs_k", ["my.py:needs_k", "'k'"]),
        ("rule.name=my.py:too_short", ["my.py:too_short", "rewards, m, rng"]),
        ("rule.name=my.py:rule kept_per_prompt=1", ["kept_per_prompt=1", "2 or more"]),
        ("algorithm.name=best", ["algorithm.name=best", "greso", "speed"]),
        ("algorithm.name=my.py:rule", ["algorithm.name=my.py:rule", "must yield"]),
        ("algorithm=dapo algorithm.params.turns=1", ["params={'turns': 1}", "are: rounds"]),
        ("algorithm=dapo rollouts_per_prompt=32", ["rollouts_per_prompt=32", "trains on every"]),
        ("algorithm.max_rounds=0", ["algorithm.max_rounds=0", "greater than 0"]),
        ("algorithm=dapo rule=random", ["rule=random: algorithm=dapo", "algorithm=pods"]),
        ("algorithm=d3s advantage=rloo", ["advantage=rloo: algorithm=d3s", "advantage=kept"]),
        ("micro_batch_size=3", ["micro_batch_size=3", "the 16 rows of a step"]),
        ("advantage.name=my.py:reward", ["advantage.name=my.py:reward", "batch"]),
        ("advantage.name=my.py:advantage advantage.params.x=1", ["advantage.params={'x': 1}"]),
    ],
)
@pytest.mark.usefixtures("functions")
def test_a_broken_rule_is_named(overrides, said):
    with pytest.raises(UserError) as error:
        compose(*overrides.split())
    message = str(error.value)
    assert "\n" not in message
    assert all(part in message for part in said), message


@pytest.mark.parametrize(
    "overrides",
    [
        "rule.name=my.py:rule rule.params.k=3",
        "algorithm=dapo algorithm.params.rounds=2",
        "algorithm=speed rollouts_per_prompt=16 kept_per_prompt=8 prompts_per_step=4",
        "advantage.name=my.py:advantage advantage.params.scale=2",
        "rewards.functions.brevity=my.py:reward rewards.weights.brevity=-0.5",
        "rewards.functions.brevity=my.py:reward rewards.weights={correctness:0}",
        OWN + "task.gold=my.py:gold",
        "engine=trl engine.vllm_mode=server rollouts_per_prompt=64",
        "engine=trl sampling.stop=[end]",
        "engine=vllm engine.max_sequences=8",
    ],
)
@pytest.mark.usefixtures("functions")
def test_functions_of_the_user_and_engines_pass(overrides):
    config = compose(*overrides.split())
    for key, value in (override.split("=", 1) for override in overrides.split()):
        if key.startswith(("rule.", "advantage.", "rewards.functions.")):
            group, _, name = key.rpartition(".")
            section = get(config, group)
            found = section[name] if isinstance(section, dict) else getattr(section, name)
            assert str(found) == value


def test_a_reward_function_without_a_weight_counts_once(functions):
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
        ("experiment=gsm8k_a100", "seconds"),
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
        config.rollouts_per_prompt = config.kept_per_prompt = 1
        config.algorithm.name = config.rule.name = "any"
    assert configs[0] == configs[1] == configs[2]


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ("", "quickstart-pods-max_variance-n32-m16-seed0"),
        ("seed=1", "quickstart-pods-max_variance-n32-m16-seed1"),
        ("algorithm=grpo", "quickstart-grpo-all-n16-m16-seed0"),
        ("rule=random kept_per_prompt=8", "quickstart-pods-random-n32-m8-seed0"),
        ("advantage=kept", "quickstart-pods-max_variance-n32-m16-seed0"),
        ("advantage=rloo", "quickstart-pods-max_variance-rloo-n32-m16-seed0"),
        ("rule.name=my.py:rule", "quickstart-pods-rule-n32-m16-seed0"),
        ("algorithm=speed", "quickstart-speed-n32-m16-seed0"),
        ("algorithm=dapo algorithm.params.rounds=2", "quickstart-dapo-rounds2-n16-m16-seed0"),
        (
            "rewards.functions.brevity=my.py:reward",
            "quickstart-pods-max_variance-brevity-n32-m16-seed0",
        ),
        (OWN + "task.gold=boxed", "quickstart-pods-max_variance-own-n32-m16-seed0"),
        ("advantage.name=my.py:advantage", "quickstart-pods-max_variance-advantage-n32-m16-seed0"),
    ],
)
@pytest.mark.usefixtures("functions")
def test_runs_with_other_settings_have_other_names(overrides, name):
    assert compose(*overrides.split()).run == name
