"""benchmarks/breakeven.py on made-up rows: its answers are known."""

import json
from itertools import product

import numpy as np
import pytest

from benchmarks import breakeven
from benchmarks.breakeven import Setting

STEPS = [*range(10, 161, 10)]
RATES = breakeven.POLICIES["sums"].rates


def line(seed, slope, base=0.5, **fields):
    """A run whose accuracy rises by `slope` a step from the base on."""
    accuracy = [base + slope * step for step in STEPS]
    return {"seed": seed, "steps": STEPS, "accuracy": accuracy} | fields


@pytest.fixture
def rows():
    """24 seeds: with one prompt PODS learns 1.5 times as fast a step, with four 1.2 times."""
    rng = np.random.default_rng(0)
    rows = [{"stage": "base", "policy": "sums", "accuracy": [0.5, 0.5]}]
    for seed in breakeven.POLICIES["sums"].test_seeds:
        slope = 0.001 * rng.uniform(0.9, 1.1)
        for P, arm, factor in ((1, "grpo", 1), (1, "pods", 1.5), (4, "grpo", 1), (4, "pods", 1.2)):
            setting = Setting("test", "sums", arm, P, 1e-3)._asdict()
            own = slope * factor * rng.uniform(0.95, 1.05)
            rows.append(line(seed, own, adapter=f"{seed} {arm} {P}", **setting))
            if seed == 200:
                twin = setting | {"stage": "twin"}
                rows.append(line(seed, own, adapter=f"{seed} {arm if P == 1 else ''} {P}", **twin))
    for P, arm, rate, seed in product((1, 4), ("grpo", "pods"), RATES, range(3)):
        setting = Setting("tune", "sums", arm, P, rate)._asdict()
        rows.append(line(seed, 0.001 + (rate == 1e-3) / 1000, **setting))
    return rows


def test_the_mean_over_priced_seconds_is_the_integral():
    runs = [line(1, 0.002), line(0, 0.001)]
    assert breakeven.means(runs, 0.5, 1) == pytest.approx([50 + 8, 50 + 16]), "by seed"
    assert breakeven.means(runs, 0.5, 1.39) == pytest.approx([50 + 8 / 1.39, 50 + 16 / 1.39])


def test_straight_curves_break_even_at_the_ratio_of_their_slopes(rows):
    cs = np.arange(1, 4.001, 0.01)
    for P, ratio in ((1, 1.5), (4, 1.2)):
        arms = {
            arm: [r for r in rows if (r["stage"], r.get("arm"), r.get("P")) == ("test", arm, P)]
            for arm in ("grpo", "pods")
        }
        grpo = breakeven.means(arms["grpo"], 0.5, 1)
        leads = np.stack([breakeven.means(arms["pods"], 0.5, c) - grpo for c in cs], axis=1)
        c, low, high = breakeven.break_even(leads, cs)
        assert low <= c <= high
        assert c == pytest.approx(ratio, abs=0.03)
    assert breakeven.break_even(leads - 50, cs) == (0, 0, 0), "behind at every c"


def test_sign_flips_are_those_of_all_signs():
    rng = np.random.default_rng(1)
    values = rng.normal(0.5, 1, 9)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 9)).reshape(9, -1)
    expected = np.mean(abs(values @ signs) >= abs(values.sum()) - 1e-9)
    assert breakeven.sign_flips(values) == expected
    assert breakeven.sign_flips(np.ones(6)) == 2 / 2**6


@pytest.mark.parametrize(
    ("mean", "spread", "verdict"),
    [
        (3, 1, "pays"),
        (-3, 1, "does not pay"),
        (0.1, 0.5, "does not pay"),
        (0.4, 3.0, "equal"),
        (1, 8, "undecided"),
    ],
)
def test_the_first_threshold_that_applies_decides(mean, spread, verdict):
    values = np.linspace(-1, 1, 24)
    assert breakeven.test(mean + spread * values, 0.05).verdict == verdict


def test_holm_tests_the_smaller_p_at_half_of_alpha():
    values = np.linspace(-1, 1, 12)
    sure, unsure, nothing = 30 + values, 4.2 + 10 * values, values
    first, second = breakeven.holm(unsure, sure)
    assert (first.alpha, second.alpha) == (0.05, 0.025)
    assert 0.025 < first.student < 0.05
    assert first.verdict == "pays"
    first, second = breakeven.holm(unsure, nothing)
    assert (first.alpha, second.alpha) == (0.025, 0.025)
    assert first.verdict == "undecided"


def test_collapsed_runs_are_counted_against_the_base():
    low, high = line(0, -0.001), line(1, 0.001)
    text = breakeven.collapses([low, high], [line(0, 0.001), high], 0.5)
    assert text == "collapsed: GRPO 1, PODS 0 of 2; McNemar p 1"


def test_the_report_decides_both_hypotheses_and_names_what_is_missing(rows, capsys):
    breakeven.report(rows)
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if "H1" in line).endswith(": pays")
    assert next(line for line in lines if "H2" in line).endswith(": pays")
    assert [line for line in lines if "equal to the bit" in line] == [
        "  2 of 2 runs that were trained again are equal to the bit",
        "  0 of 2 runs that were trained again are equal to the bit",
    ]
    assert lines[5].endswith("at 0.001; tested at 0.001")
    assert "0 runs are stored; run smollm2-test" in lines[-1]


def test_a_rate_is_chosen_by_both_arms_and_needs_every_validation_seed():
    rows = []
    for rate, grpo, pods in ((5e-4, 2, 1), (1e-3, 1, 3), (2e-3, 1, 1), (4e-3, -9, 5)):
        for arm, slope in (("grpo", grpo), ("pods", pods)):
            setting = Setting("tune", "sums", arm, 1, rate)._asdict()
            rows += [line(seed, slope * 1e-4, **setting) for seed in range(3)]
    assert breakeven.best_rate("sums", 1, rows) == 1e-3
    with pytest.raises(SystemExit, match="run sums-tune first"):
        breakeven.best_rate("sums", 1, rows[1:])


def test_a_stored_run_is_not_planned_again(tmp_path, monkeypatch):
    """An interrupted call stores what it has trained; only the rest is trained then."""
    monkeypatch.setattr(breakeven, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(breakeven, "RESULTS", tmp_path / "rows")
    trained = []

    def run(words, **options):
        name = next(w for w in words if w.startswith("run=")).removeprefix("run=")
        for seed in words[-1].removeprefix("seed=").split(","):
            trained.append(name.replace("${seed}", seed))
            folder = tmp_path / "runs" / trained[-1]
            scores = dict.fromkeys(("eval/accuracy", "eval/greedy_accuracy"), 0.5)
            tokens = dict.fromkeys(("tokens/generated", "tokens/trained"), 1)
            breakeven.files.append(folder / "evaluations.jsonl", {"step": 160} | scores | tokens)
            meta = {"git_commit": "0", "files": {"adapter_model.safetensors": {"sha256": "a"}}}
            breakeven.files.write_atomic(folder / "checkpoint-160/meta.json", json.dumps(meta))
            if len(trained) == 4:
                raise KeyboardInterrupt

    monkeypatch.setattr(breakeven.subprocess, "run", run)
    with pytest.raises(KeyboardInterrupt):
        breakeven.main("sums-tune")
    breakeven.main("sums-tune")
    assert len(trained) == len(set(trained)) == 48
    assert len(breakeven.rows()) == 48
    breakeven.main("sums-tune")
    assert len(trained) == 48


def test_the_new_test_questions_are_in_no_split(tmp_path, monkeypatch):
    monkeypatch.setattr(breakeven, "RUNS", tmp_path)
    breakeven.write_inputs()
    read = {
        split: {r["question"] for r in breakeven.files.read_lines(tmp_path / f"sums/{split}.jsonl")}
        for split in ("train", "validation", "test")
    }
    published = {row["question"] for row in breakeven.arithmetic.rows("test")}
    assert len(read["test"]) == 256
    assert not read["test"] & (read["train"] | read["validation"] | published)
