"""pods/runs/costs.py: the seconds of a step, from the steps of a run."""

import json

import numpy as np
import pandas
import pytest

from pods.config.errors import UserError
from pods.runs import costs


def step(number, lengths, generate, score=0.0, select=0.0, update=0.2, kept=2, rounds=1):
    """The metrics of a step that are read; `kept` rollouts of each step are trained on."""
    return {
        "step": number,
        "seconds/generate": generate,
        "seconds/score": score,
        "seconds/select": select,
        "seconds/update": update,
        "all/completion_length_mean": float(np.mean(lengths)),
        "all/completion_length_max": float(np.max(lengths)),
        "generate/rollouts": float(np.size(lengths)),
        "generate/rounds": float(rounds),
        "rollouts/generated": np.size(lengths) * number,
        "rollouts/trained": kept * number,
    }


def test_mean_costs_are_recovered():
    """.01 s + .002 s a token of the longest + 1e-4 s a token; 1 ms to score, .05 s to train one."""
    rng = np.random.default_rng(1)
    metrics = []
    every = []
    for number in range(1, 151):
        scale = rng.uniform(0.3, 1)
        lengths = np.array([(rng.integers(5, 51, 16) * scale).astype(int) for _ in range(2)])
        generation = 0.01 + 0.002 * lengths.max() + 1e-4 * lengths.sum()
        metrics.append(step(number, lengths, generation, 0.02, 0.012, kept=4))
        every.append(lengths)
    prices = costs.fit(pandas.DataFrame(metrics))
    flat = np.array(every)
    assert prices.fixed == pytest.approx(0.01 + 0.002 * flat.max(axis=(1, 2)).mean())
    assert prices.generate == pytest.approx(1e-3 + 1e-4 * flat.mean())
    assert prices.update == pytest.approx(0.05)


def test_lost_lines_of_a_broken_file_change_no_price():
    metrics = pandas.DataFrame(step(number, [3, 5], 0.5, kept=1) for number in range(1, 31))
    prices = costs.fit(metrics[10:])
    assert prices.model_dump(exclude={"name"}) == pytest.approx(
        costs.fit(metrics).model_dump(exclude={"name"})
    )


def test_every_round_has_the_fixed_seconds():
    """Steps of one to four rounds of .5 s, and .002 s a token."""
    rng = np.random.default_rng(1)
    metrics = []
    for number, rounds in enumerate(rng.integers(1, 5, size=100), 1):
        lengths = rng.integers(5, 51, size=8)
        metrics.append(step(number, lengths, 0.5 * rounds + 0.002 * lengths.sum(), rounds=rounds))
    prices = costs.fit(pandas.DataFrame(metrics))
    assert (prices.fixed, prices.round) == pytest.approx((0.5, 0.5))


def test_a_step_of_equal_lengths_has_fixed_seconds_alone():
    """Three rollouts of 10/3 tokens: their sum is a whole number again."""
    metrics = [step(number, [3, 3, 4], 0.5, update=0.0, kept=1) for number in range(1, 13)]
    prices = costs.fit(pandas.DataFrame(metrics))
    assert prices.fixed == pytest.approx(0.5)
    assert (prices.generate, prices.update) == (0, 0)


def test_the_prices_of_a_run_are_of_its_metrics_from_ten_steps_on(tmp_path):
    """Steps of .5 s and .2 s, two prompts, 2 of 4 rollouts kept."""
    (tmp_path / "r").mkdir()
    lines = [json.dumps(step(n, [1, 2, 3, 4] * 2, 0.5, kept=4)) + "\n" for n in range(1, 11)]
    metrics = tmp_path / "r" / "metrics.jsonl"
    metrics.write_text("".join(lines[:9]))
    with pytest.raises(UserError, match="run=r: has 9 steps, and costs need 10 or more"):
        costs.of_run(tmp_path / "r")
    metrics.write_text("".join(lines))
    assert costs.of_run(tmp_path / "r").fixed == pytest.approx(0.5)
