"""The planner against enumeration and its own formulas; scripts/plan.py on a run and on numbers."""

import itertools
import json

import numpy as np
import pytest

from pods.figures import drawing, planner
from pods.figures.planner import Cell
from tests.figures import ledger_file, printed, refused

PLAN = "scripts/plan.py"
NUMBERS = ["cost.fixed=1", "cost.generate=.01", "cost.update=.05", "accuracy=.7"]


def stupid_signal(n, m, p):
    """J over all 2^n outcomes, of the m rewards with the largest spread."""
    outcomes = np.array(list(itertools.product([0.0, 1.0], repeat=n)))
    weights = np.prod(np.where(outcomes == 1, p, 1 - p), axis=1)
    spreads = np.array([max(map(np.std, itertools.combinations(row, m))) for row in outcomes])
    return m * (weights @ spreads) ** 2 / (weights @ (spreads > 0))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_signal_of_an_accuracy_is_that_of_all_outcomes(p):
    exact = [stupid_signal(n, m, p) for n, m in ((7, 7), (7, 4), (4, 4))]
    sizes = (("max_variance", 7, 7), ("max_variance", 7, 4), ("random", 7, 4))
    assert [planner.signal_of_accuracy(*size, p) for size in sizes] == pytest.approx(exact)


@pytest.mark.parametrize("rule", ["max_variance", "percentile", "max_reward"])
@pytest.mark.parametrize(("n", "m"), [(6, 3), (4, 2), (3, 3)])
def test_subsampling_agrees_with_all_subsets(rule, n, m):
    rng = np.random.default_rng(2)
    rewards = list(rng.choice([0.0, 0.1, 1.0], size=(12, 6), p=[0.5, 0.2, 0.3]))
    rewards[0] = np.full(6, 0.1)  # a prompt without signal
    groups = [np.array(group) for row in rewards for group in itertools.combinations(row, n)]
    spreads = np.array([planner.spread(rule, group, m, rng) for group in groups])
    exact = m * spreads.mean() ** 2 / (spreads > 0).mean()
    estimate = planner.signal_of_rewards(rule, n, m, rewards, rng)
    assert estimate == pytest.approx(exact, rel=1e-9 if n == 6 else 0.06)


def test_more_rollouts_than_recorded_find_further_signal():
    """J of 64 rollouts a prompt, from 16 recorded ones, against 64 that were drawn."""
    rng = np.random.default_rng(3)
    rewards = (rng.random((800, 64)) < rng.beta(0.6, 1.4, size=(800, 1))).astype(float)
    recorded = [row[:16] for row in rewards]
    now, predicted, drawn = (
        planner.signal_of_rewards("max_variance", n, 16, groups, rng)
        for n, groups in ((16, recorded), (64, recorded), (64, list(rewards)))
    )
    assert predicted == pytest.approx(drawn, rel=0.15)
    assert predicted > 1.2 * now


def test_mean_costs_are_recovered():
    """.01 s + .002 s a token of the longest + 1e-4 s a token; 1 ms to score, .05 s to train one."""
    rng, lines, steps = np.random.default_rng(1), [], []
    for _ in range(150):
        scale = rng.uniform(0.3, 1)
        lengths = [(rng.integers(5, 51, size=16) * scale).astype(int) for _ in range(2)]
        steps.append([{"lengths": part, "kept": [0, 1]} for part in lengths])
        longest, tokens = np.max(lengths), np.sum(lengths)
        seconds = {"generate": 0.01 + 0.002 * longest + 1e-4 * tokens, "score": 0.02}
        seconds |= {"select": 0.012, "update": 0.2}
        lines.append({f"seconds/{phase}": value for phase, value in seconds.items()})
    cost = planner.mean_cost(lines, steps)
    flat = np.array([[part["lengths"] for part in step] for step in steps])
    truth = 0.01 + 0.002 * flat.max(axis=(1, 2)).mean(), 1e-3 + 1e-4 * flat.mean(), 0.05
    assert (cost.fixed, cost.generate, cost.update) == pytest.approx(truth)


def test_the_verdict_is_one_and_allows_for_the_error():
    grpo = [Cell(1, size, size, 1, 1, rate) for size, rate in ((8, 0.5), (16, 1.0))]
    assert planner.verdict(grpo) == "only GRPO (n = m) was compared"
    even = "makes no clear difference"
    for pods, words in ((1.3, "should pay"), (1.1, even), (0.9, even), (0.7, "should not pay")):
        sentence = planner.verdict([*grpo, Cell(1, 16, 8, 1, 1, pods)])
        assert sentence.startswith(f"PODS {words}: P = 1, n = 16, m = 8 is predicted {pods} times")
        assert sentence.endswith("GRPO, P = 1, n = 16, m = 16")


def test_a_plan_from_numbers_is_the_formula(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(drawing, "save", lambda *_: None)  # takes seconds
    keys = ["kappa=.3", "between=.5", "cells=[[2,8,8],[4,16,4]]", f"out_dir={tmp_path}"]
    plan = json.loads(printed(capsys, PLAN, *NUMBERS, *keys, "json=true")[0])
    for cell, (p, n, m) in zip(plan["cells"], [(2, 8, 8), (4, 16, 4)], strict=True):
        seconds = 1 + 0.01 * n * p + 0.05 * m * p
        snr2 = p / (0.5 + 1 / (0.3 * planner.signal_of_accuracy("max_variance", n, m, 0.7)))
        assert (cell["prompts"], cell["n"], cell["m"]) == (p, n, m)
        assert cell["seconds_per_step"] == pytest.approx(seconds)
        assert cell["snr2"] == pytest.approx(snr2)
        assert cell["rate"] == pytest.approx(snr2 / (1 + snr2) / seconds)
    first, second = plan["cells"]
    assert (first["relative"], second["relative"]) == (1, second["rate"] / first["rate"])
    assert plan["best"] == max(plan["cells"], key=lambda cell: cell["rate"])


def test_the_published_l40s_answers_without_a_run(tmp_path, capsys):
    keys = ("experiment=gsm8k_qwen", "accuracy=.5", "cells=[[1,16,16],[1,64,16]]")
    text, _ = printed(capsys, PLAN, *keys, f"out_dir={tmp_path}")
    assert "4.8 + 0.06 n P + 0.105 m P" in text
    assert text.count("PODS") == 1, "one verdict"
    assert (tmp_path / "plan" / "gsm8k_qwen.png").stat().st_size > 10_000


def test_a_plan_from_a_run(tmp_path, monkeypatch, capsys):
    """14 steps of two prompts, 2 of 4 rollouts kept."""
    run, rng = tmp_path / "checkpoints" / "r", np.random.default_rng(0)
    (run / ".hydra").mkdir(parents=True)
    sizes = "prompts_per_step: 2\nrollouts_per_prompt: 4\nkept_per_prompt: 2\n"
    (run / ".hydra" / "config.yaml").write_text(sizes)
    seconds = {"seconds/generate": 0.5, "seconds/update": 0.2}
    seconds |= {"seconds/score": 0, "seconds/select": 0}
    lines = [json.dumps({"step": step, **seconds}) for step in range(1, 15)]
    (run / "metrics.jsonl").write_text("\n".join(lines))
    group = {"lengths": [1, 2, 3, 4], "kept": [0, 1]}
    rewards = (rng.random((28, 4)) < 0.4) * 1.0
    groups = ({"step": 1 + i // 2, "total": [*row]} for i, row in enumerate(rewards))
    ledger_file(run, (group | step for step in groups))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drawing, "save", lambda *_: None)  # takes seconds
    plan = json.loads(printed(capsys, PLAN, "run=r", "json=true", "cost.generate=.1")[0])
    assert {cell["prompts"] for cell in plan["cells"]} == {2}, "other P need kappa and between"
    assert max(cell["n"] for cell in plan["cells"]) == 16, "4 n of the run"
    sizes = [(cell["n"], cell["m"]) for cell in plan["cells"]]
    assert plan["cells"][sizes.index((2, 2))]["relative"] == 1, "GRPO at the run's own m"
    assert plan["notes"][0].endswith(" + 0.1 n P + 0.05 m P"), "a given cost replaces the run's"
    text, _ = printed(capsys, PLAN, "run=r", "window=[3,14]", "cells=[[2,4,2]]")
    assert "the steps do not tell a rollout's seconds" in text
    assert "run=r: has 6 steps, a plan needs 10" in refused(capsys, PLAN, "run=r", "window=[3,8]")
