"""The planner against enumeration, simulation and its own formulas; scripts/plan.py on a run."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pods.figures import planner
from pods.figures.planner import Cell, Steps
from pods.runs import ledger
from tests import processes
from tests.fake_run import make_run
from tests.steps import step_of


def stupid_signal(keep: Callable, n: int, m: int, p: float) -> float:
    """J over all 2^n outcomes."""
    outcomes = np.array(list(itertools.product([0.0, 1.0], repeat=n)))
    weights = np.prod(np.where(outcomes == 1, p, 1 - p), axis=1)
    spreads = np.array([keep(row, m) for row in outcomes])
    return m * (weights @ spreads) ** 2 / (weights @ (spreads > 0))


def most(row: np.ndarray, m: int) -> float:
    """The largest std of all subsets of m."""
    return max(np.std(subset) for subset in itertools.combinations(row, m))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_signal_of_an_accuracy_is_that_of_all_outcomes(p):
    everything = stupid_signal(lambda row, m: np.std(row), 7, 7, p)
    assert planner.signal_of_accuracy("max_variance", 7, 7, p) == pytest.approx(everything)
    best = stupid_signal(most, 7, 4, p)
    assert planner.signal_of_accuracy("max_variance", 7, 4, p) == pytest.approx(best)
    four = stupid_signal(lambda row, m: np.std(row), 4, 4, p)
    assert planner.signal_of_accuracy("random", 7, 4, p) == pytest.approx(four)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.8])
@pytest.mark.parametrize(("side", "pays"), [(0.85, False), (1.15, True)])
def test_large_groups_pay_where_the_update_is_dear_enough(p, side, pays):
    """PODS keeps all of the rarer kind and as many others; small SNR, no fixed cost."""
    n, q, ratio = 300, min(p, 1 - p), side * planner.break_even(p)

    def speed(m: int) -> float:
        signal = planner.signal_of_accuracy("max_variance", n, m, p)
        return signal / (n + ratio * m)

    assert (speed(round(2 * q * n)) > speed(n)) == pays


def run_of(cell: Cell, rewards: np.ndarray, rng: np.random.Generator, sd: float = 0.0) -> Steps:
    """Steps with completions of 5 to 50 tokens, .01 s + .002 s a token of the longest + 1e-4 s a
    token; 5e-4 s a trained rollout + 3e-4 s a token of it; 1 ms of scoring a rollout."""
    steps = len(rewards)
    lengths = rng.integers(5, 51, size=(steps, cell.prompts * cell.n))
    lengths = (lengths * rng.uniform(0.3, 1, size=(steps, 1))).astype(int)
    total, longest = lengths.sum(axis=1), lengths.max(axis=1)
    trained = lengths[:, : cell.m * cell.prompts].sum(axis=1)
    seconds = {
        "generate": 0.01 + 0.002 * longest + 1e-4 * total + sd * rng.standard_normal(steps),
        "update": 5e-4 * cell.m * cell.prompts + 3e-4 * trained + sd * rng.standard_normal(steps),
        "score": np.full(steps, 1e-3 * cell.prompts * cell.n),
    }
    return Steps(cell, rewards, rewards > 0.5, seconds, total, trained, longest)


@pytest.mark.parametrize(("sd", "tolerance"), [(0.0, 1e-6), (0.01, 0.15)])
def test_costs_are_recovered_from_steps(sd, tolerance):
    rng = np.random.default_rng(1)
    cells = (Cell(2, 16, 16), Cell(1, 64, 16))
    runs = [run_of(cell, np.zeros((150, cell.prompts, cell.n)), rng, sd) for cell in cells]
    weights = [planner.resampled(150, 50, rng) for _ in runs]
    costs = planner.fit_costs(runs, weights)
    own = runs[0]
    truth = {
        "fixed": 0.01 + 0.002 * own.longest.mean(),
        "generate": 1e-3 + 1e-4 * own.generated.mean() / 32,
        "update": 5e-4 + 3e-4 * own.trained.mean() / 32,
    }
    for name, value in truth.items():
        found = getattr(costs, name)
        assert found[0] == pytest.approx(value, rel=tolerance), name
        low, high = planner.interval(found)
        spread = abs(low - value) + abs(high - value)
        assert spread > 0.01 * value or sd == 0  # noise has an interval
    measured = sum(own.seconds.values()).mean()
    assert costs.of(own.cell)[0] == pytest.approx(measured, rel=0.02)


def test_fewer_than_ten_steps_have_no_interval():
    with pytest.raises(ValueError, match="9 steps; intervals need 10 or more"):
        planner.resampled(9, 10, np.random.default_rng(0))


@pytest.mark.parametrize("rule", ["max_variance", "percentile", "max_reward"])
@pytest.mark.parametrize(("n", "m"), [(6, 3), (4, 2), (3, 3)])
def test_subsampling_agrees_with_all_subsets(rule, n, m):
    rng = np.random.default_rng(2)
    rewards = rng.choice([0.0, 0.1, 1.0], size=(12, 1, 6), p=[0.5, 0.2, 0.3])
    rewards[0] = 0.1  # a prompt without signal
    spreads = [
        [planner.spread(rule, np.array(group), m, rng) for group in itertools.combinations(row, n)]
        for row in rewards[:, 0]
    ]
    exact = m * np.mean(spreads) ** 2 / np.mean(np.array(spreads) > 0)
    weights = planner.resampled(12, 20, rng)
    steps = run_of(Cell(1, 6, 6), rewards, rng)
    found = planner.signal(steps, rule, n, m, weights, rng)
    assert found.shape == (21, 1)
    assert found[0] == pytest.approx(exact, rel=1e-9 if n == 6 else 0.06)


def test_more_rollouts_than_recorded_follow_a_beta_binomial():
    """64 rollouts a prompt predicted from 16, against 64 that were drawn."""
    rng = np.random.default_rng(3)
    shares = rng.beta(0.6, 1.4, size=(800, 1, 1))
    right = rng.random((800, 1, 64)) < shares
    rewards = np.where(right, 1.0, rng.choice([0.0, 0.1], size=right.shape))
    weights = np.full((1, 800), 1 / 800)
    few = run_of(Cell(1, 16, 16), rewards[:, :, :16], rng)
    many = run_of(Cell(1, 64, 16), rewards, rng)
    assert planner.fit_beta(few.right.sum(axis=2).ravel(), 16) == pytest.approx((0.6, 1.4), rel=0.2)
    predicted, drawn = (
        planner.signal(steps, "max_variance", 64, 16, weights, rng)[0].mean()
        for steps in (few, many)
    )
    recorded = planner.signal(few, "max_variance", 16, 16, weights, rng)[0].mean()
    assert predicted == pytest.approx(drawn, rel=0.05)
    assert predicted > 1.3 * recorded


@pytest.mark.parametrize(("prompts", "between"), [(4, 0.7), (1, 0.0)])
def test_kappa_and_noise_between_prompts_come_from_norms(prompts, between):
    """Gradients drawn from the model: |G|^2 = 1, trace of the noise of one rollout sigma2."""
    rng, steps, size, m, sigma2, own = np.random.default_rng(4), 3000, 50, 8, 6.0, 1.7
    mean = rng.standard_normal(size)
    mean /= np.linalg.norm(mean)
    shape = (steps, prompts, 2, size)
    apart = rng.standard_normal((steps, prompts, 1, size)) * np.sqrt(between / size)
    halves = mean + apart + rng.standard_normal(shape) * np.sqrt(sigma2 / size / (m / 2))
    whole = halves.mean(axis=(1, 2))
    norms = np.stack(
        [
            (halves**2).sum(axis=3).mean(axis=(1, 2)),
            (halves.mean(axis=2) ** 2).sum(axis=2).mean(axis=1),
            (whole**2).sum(axis=1),
        ],
        axis=1,
    )
    norms[::3] = np.nan  # not measured in these steps
    weights = planner.resampled(steps, 20, rng)
    kappa, found = planner.fit_noise(norms, prompts, np.full(21, own), weights)
    assert kappa[0] == pytest.approx(m / sigma2 / own, rel=0.1)
    assert (found is None) == (prompts == 1)
    assert found is None or found[0] == pytest.approx(between, rel=0.2)
    snr2 = planner.snr2(np.full(21, own), prompts, kappa, 0.0 if found is None else found)
    assert snr2[0] == pytest.approx(1 / whole.var(axis=0).sum(), rel=0.1)
    assert planner.fit_noise(norms[:12], prompts, np.ones(1), np.ones((1, 12))) == (None, None)


NUMBERS = ["cost.fixed=1", "cost.generate=.01", "cost.update=.05", "accuracy=.7"]


def command(folder: Path, *arguments: str) -> processes.Process:
    return processes.run(folder / "out", *arguments, script="scripts/plan.py", cwd=folder)


def test_a_plan_from_numbers_is_the_formula(tmp_path):
    cells = "cells=[[2,8,8],[4,16,4]]"
    done = command(tmp_path, *NUMBERS, "kappa=.3", "between=.5", cells, "json=true")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for cell, (p, n, m) in zip(found["cells"], [(2, 8, 8), (4, 16, 4)], strict=True):
        seconds = 1 + 0.01 * n * p + 0.05 * m * p
        j = planner.signal_of_accuracy("max_variance", n, m, 0.7)
        snr2 = p / (0.5 + 1 / (0.3 * j))
        assert (cell["prompts"], cell["n"], cell["m"]) == (p, n, m)
        assert cell["seconds_per_step"] == pytest.approx(seconds)
        assert cell["snr2"] == pytest.approx(snr2)
        assert cell["rate"] == pytest.approx(snr2 / (1 + snr2) / seconds)
    first, second = found["cells"]
    assert second["relative"] == pytest.approx(second["rate"] / first["rate"])
    assert found["best"].items() >= max(found["cells"], key=lambda cell: cell["rate"]).items()


def test_the_published_l40s_answers_without_a_run(tmp_path):
    done = command(tmp_path, "experiment=gsm8k_qwen", "accuracy=.5", "rule=max_variance")
    assert done.returncode == 0, done.stderr
    assert "4.8 + 0.06 n P + 0.105 m P" in done.stdout
    assert "PODS should not pay" in done.stdout
    assert "u/g = 1.8: below 1 / |1 - 2p| = inf" in done.stdout
    assert "uv run train.py experiment=gsm8k_qwen algorithm=grpo" in done.stdout
    assert (tmp_path / "figures" / "plan" / "gsm8k_qwen.png").stat().st_size > 10_000


def recorded_run(folder: Path, steps: int, step_norm: float = 1.4) -> None:
    """Two prompts a step, 2 of 4 rollouts kept, with gradient norms in every step."""
    sizes = {"rollouts_per_prompt": 4, "kept_per_prompt": 2, "prompts_per_step": 2}
    path = make_run(folder / "checkpoints", "r", steps=(), **sizes)
    book, rng = ledger.Ledger(path / "rollouts.jsonl.gz", "none"), np.random.default_rng(0)
    lines = []
    for number in range(1, steps + 1):
        rewards = (rng.random((2, 4)) < 0.4).astype(float)
        book.append(number, step_of({"a": rewards[0], "b": rewards[1]}, [0, 1, 4, 5]))
        noisy = {"half": 3.0, "prompt": 2.0, "step": step_norm + 0.1 * rng.random()}
        phases = {"generate": 0.5 + 0.1 * rng.random(), "score": 0, "select": 0, "update": 0.2}
        line = {f"seconds/{name}": value for name, value in phases.items()}
        line |= {f"gradient_noise/{name}": value for name, value in noisy.items()}
        lines.append(json.dumps({"step": number, **line}))
    book.flush()
    (path / "metrics.jsonl").write_text("\n".join(lines))


def test_a_plan_from_a_run_has_intervals(tmp_path):
    recorded_run(tmp_path, 14)
    done = command(tmp_path, "run=r", "json=true", "resamples=40")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {cell["prompts"] for cell in found["cells"]} == {1, 2, 4, 8}
    assert max(cell["n"] for cell in found["cells"]) == 16  # 4 n of the run
    sizes = [(cell["prompts"], cell["n"], cell["m"]) for cell in found["cells"]]
    assert found["cells"][sizes.index((2, 2, 2))]["relative"] == 1  # GRPO at the run's own m
    low, high = found["cells"][sizes.index((2, 16, 4))]["to_own_ci95"]
    assert low < found["cells"][sizes.index((2, 16, 4))]["to_own"] < high
    assert any(note.startswith("kappa") and "A " in note for note in found["notes"])
    assert any("add a run of other n and m" in note for note in found["notes"])
    done = command(tmp_path, "run=r", "window=[3,14]", "signal=correctness", "cells=[[2,4,2]]")
    assert done.returncode == 0, done.stderr
    assert "2  4  2" in done.stdout


def test_norms_that_hide_the_signal_are_not_used(tmp_path):
    recorded_run(tmp_path, 14, step_norm=0.95)  # 2 step - prompt: about 0, the noise alone
    done = command(tmp_path, "run=r", "json=true", "resamples=40")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "the gradient norms are too noisy to be used" in found["notes"][0]
    assert any(note.startswith("kappa is unknown") for note in found["notes"])
    assert {cell["prompts"] for cell in found["cells"]} == {2}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run=r", "window=[3,8]"], "run=r window=[3,8]: 6 steps; intervals need 10 or more"),
        (["run=absent"], "runs with one: r"),
        ([], "accuracy=None: must lie between 0 and 1"),
        (["accuracy=.5", "run=r"], "is measured in run=r"),
        (["accuracy=.5", "cells=[[1,4,8]]"], "[1, 4, 8] must be [P,n,m]"),
        (["accuracy=.5", "cost.fixed=1"], "cost.generate=null: missing"),
        (["accuracy=.5", "rule=best"], "rule=best: must be one of"),
        (["accuracy=.5", "window=3"], "window=3"),
        (["accuracy=.5", "rule=all"], "rule=all: rule all keeps every rollout"),
    ],
)
def test_what_cannot_be_planned_is_one_line(tmp_path, arguments, said):
    recorded_run(tmp_path, 12)
    done = command(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("ratio", [1.2, 1.8, 5.0])
def test_the_words_of_where_it_pays_agree_with_the_break_even(ratio):
    said = planner.where_it_pays(ratio)
    low, high = (int(share) / 100 for share in re.findall(r"(\d+)%", said))
    assert planner.break_even(low - 0.02) < ratio < planner.break_even(low + 0.02)
    assert low + high == pytest.approx(1)
    assert "should not pay" in planner.where_it_pays(1.0)
