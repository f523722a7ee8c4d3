"""A wrong config is one line with key, value, rule and remedy, exit code 2, and nothing written."""

import pytest

from pods.cli import UserError
from tests import processes
from tests.configs import compose


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("kept_per_prompt=128", ["kept_per_prompt=128", "rollouts_per_prompt=64", "lower"]),
        ("kept_per_prompt=12 micro_batch_size=5", ["micro_batch_size=5", "divide", "12"]),
        ("algorithm=grpo rollouts_per_prompt=64", ["algorithm=grpo", "64", "16", "pods"]),
        ("rule=all", ["rule=all", "kept_per_prompt=64", "max_variance"]),
        ("rule.name=best", ["rule.name=best", "percentile"]),
        ("kept_per_prompt=1", ["kept_per_prompt=1", "2 or more"]),
        ("kept_per_prompt=0", ["kept_per_prompt=0", "greater than 0"]),
        ("budget.train_seconds=null", ["max_steps=null", "needs an end"]),
        ("budget.train_seconds=0", ["budget.train_seconds=0", "greater than 0"]),
        ("optimizer.schedule=cosine", ["optimizer.schedule=cosine", "max_steps"]),
        ("optimizer.schedule=step", ["optimizer.schedule=step", "constant, linear, cosine"]),
        ("sampling.temperature=0", ["sampling.temperature=0", "greater than 0"]),
        ("sampling.top_p=1.5", ["sampling.top_p=1.5", "(0, 1]"]),
        ("rewards.version=v3", ["rewards.version=v3", "v1, v1-correctness, v2, strict"]),
        ("loss.type=ppo", ["loss.type=ppo", "grpo, dapo"]),
        ("seed=-1", ["seed=-1", "0 or more"]),
        ("run=a/b", ["run=a/b", "folder name"]),
        ("optimizer.learning_rate=nan", ["optimizer.learning_rate=nan", "greater than 0"]),
        ("+rewards.weights.brevity=1", ["brevity", "correctness, format, tags"]),
        ("task.style=poem", ["task.style=poem", "instruct, base"]),
        ("optimizer.betas=[0.9]", ["optimizer.betas=[0.9]", "two numbers"]),
    ],
)
def test_a_broken_rule_is_named(overrides, said):
    with pytest.raises(UserError) as error:
        compose(*overrides.split())
    message = str(error.value)
    assert "\n" not in message
    assert all(part in message for part in said), message


@pytest.mark.parametrize(
    ("overrides", "n", "m", "size", "rule"),
    [
        ("", 64, 16, 16, "max_variance"),
        ("algorithm=grpo", 16, 16, 16, "all"),
        ("algorithm=grpo_ga", 64, 64, 16, "all"),
        ("algorithm=grpo_ga rollouts_per_prompt=8 kept_per_prompt=4", 8, 8, 4, "all"),
        ("rollouts_per_prompt=8 kept_per_prompt=4", 8, 4, 4, "max_variance"),
        ("algorithm=grpo kept_per_prompt=32", 32, 32, 16, "all"),
        ("rule=random kept_per_prompt=8 micro_batch_size=2", 64, 8, 2, "random"),
    ],
)
def test_algorithms_settle_n_m_and_the_micro_batch(overrides, n, m, size, rule):
    config = compose(*overrides.split())
    sizes = (config.rollouts_per_prompt, config.kept_per_prompt, config.micro_batch_size)
    assert (*sizes, config.rule.name) == (n, m, size, rule)


def test_the_algorithm_changes_nothing_else():
    configs = [compose(f"algorithm={name}", "run=same") for name in ("grpo", "grpo_ga", "pods")]
    for config in configs:
        config.rollouts_per_prompt = config.kept_per_prompt = 1
        assert config.optimizer.learning_rate == config.optimizer.swept[config.algorithm.name]
        config.optimizer.learning_rate = 1.0  # each arm's own, from one sweep
        config.algorithm.name = config.rule.name = "any"
    assert configs[0] == configs[1] == configs[2]


def test_runs_with_other_settings_have_other_names():
    names = {
        compose(*overrides.split()).run
        for overrides in ("", "seed=1", "algorithm=grpo", "rule=random", "kept_per_prompt=8")
    }
    assert len(names) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kept_per_prompts=4"], "kept_per_prompts"),
        (["+kept_per_prompts=4"], "kept_per_prompts"),
        (["++sampling.temprature=1"], "temprature"),
        (["seed=one"], "seed"),
        (["experiment=gsm9k"], "gsm9k"),
        (["rule=best"], "max_variance"),
        (["kept_per_prompt=100"], "rollouts_per_prompt"),
        (["resume=nowhere/checkpoint-3"], "resume=nowhere/checkpoint-3"),
        (["model.path=no/such/folder"], "model.path=no/such/folder"),
        (["data_dir=nowhere", "task=gsm8k"], "nowhere"),
        (["model.load_in_4bit=true"], "load_in_4bit"),
        (["backend=unsloth"], "backend=unsloth"),
    ],
)
def test_the_command_says_it_in_one_line_and_writes_nothing(tmp_path, arguments, said):
    (tmp_path / "work").mkdir()
    done = processes.run(tmp_path / "said", *arguments, cwd=tmp_path / "work")
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("backend ")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("train.py: ")
    assert said in lines[0]
    assert done.stdout == ""
    assert list((tmp_path / "work").iterdir()) == []
