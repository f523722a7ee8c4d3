"""Speed-ups: the published ratios, and intervals that can be trusted."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from pods.figures import speedup, tables
from pods.figures.figure import Comparison, Series
from tests.conftest import ROOT
from tests.figures import facts_file, printed, published_files, run_file


def method(label, values, base=None, **more):
    array = np.array(values, dtype=float)
    hours = 0.5 * np.arange(1, array.shape[1] + 1)
    runs = [f"{label}-{i}" for i in range(len(array))]
    quantities = {"value": array, "seconds": np.broadcast_to(3600 * hours, array.shape)}
    more = {"seeds": [None] * len(array), "base": {} if base is None else {"value": base}} | more
    return Series(label, None, runs, quantities, hours, measured=False, **more)


def compare(baseline, pods, **changes):
    how = Comparison(fraction_of_best=0.99, target=None, resamples=2000, seed=0)
    return speedup.compare(baseline, pods, how.model_copy(update=changes))


NAN = float("nan")
SPEEDUP, IMPORT = "scripts/speedup.py", "scripts/import_published.py"


@pytest.mark.parametrize(
    ("baseline", "pods", "hours"),
    [
        ([0.2, 0.4, 1.0], [0.5, 0.99, 0.7], (1.5, 1.0)),
        ([1.0, 0.5, 0.5], [1.0, 0.5, 0.5], (0.5, 0.5)),
        ([0.2, 1.0, 0.4], [0.9, 0.9, 0.9], (1.0, None)),  # never reached
        ([0.2, NAN, 1.0], [NAN, 1.0, 1.0], (1.5, 1.0)),  # gaps
    ],
)
def test_the_published_time_is_the_first_mark_at_or_above_the_threshold(baseline, pods, hours):
    result = compare(method("GRPO", [baseline], base=1.0), method("PODS", [pods], base=1.0))
    assert result.threshold == pytest.approx(0.99)
    assert result.baseline_still_rising is (baseline[-1] == 1.0)
    assert (result.baseline_hours, result.pods_hours) == hours, "the base at time 0 reaches nothing"
    assert result.speedup == (hours[1] and hours[0] / hours[1])


def test_a_baseline_that_never_scored_is_nothing_to_reach():
    result = compare(method("GRPO", [[0.0, 0.0]] * 2), method("PODS", [[0.0, 0.5]] * 2))
    assert result.baseline_hours is result.pods_hours is result.speedup is result.ci95 is None
    assert speedup.published_row("x", result)["speed-up"] == "-"
    assert result.time_to_target is None
    assert speedup.time_row("x", result)["times as fast"] == "-"
    assert result.level.difference == 0.25


def test_a_resample_of_runs_without_a_common_mark_does_not_count():
    """The baseline's first run ends before the other one begins: a draw of the second alone has no
    point up to there, and no threshold."""
    gaps = method("GRPO", [[0.2, 0.4, NAN], [NAN, NAN, 0.9]])
    slow = replace(gaps, measured=True)
    result = compare(slow, method("PODS", [[0.5, 0.6, 0.7]] * 2))
    assert result.baseline_hours == 1.0
    assert result.ci95 == [2.0, 2.0]


def test_a_base_that_is_at_the_target_leaves_no_time_to_compare():
    """No method rose: 99 % of the baseline's level lies below what both began with."""
    slow = method("GRPO", [[0.5, 0.5]] * 2, base=0.53)
    result = compare(slow, method("PODS", [[0.5, 0.6]] * 2, base=0.53))
    assert result.time_to_target is None
    shown = " ".join(speedup.text([("x", result)]).split())
    assert "-: the base has reached the target" in shown


def one_by_one(runs):
    """Runs that reach 1 at the first, the second, ... point: the mean does with the last drawn."""
    return [[0.0] * late + [1.0] * (runs - late) for late in range(runs)]


@pytest.mark.parametrize(
    ("slow", "fast", "ci95"),
    [
        pytest.param(one_by_one(12), [[1.0] * 12] * 2, [9, 12], id="(9/12)^12 = .032"),
        pytest.param([[1.0] * 7] * 2, one_by_one(7), [1 / 7, 1 / 5], id="(4/7)^7 = .020"),
    ],
)
def test_the_bootstrap_interval_leaves_out_two_and_a_half_percent_on_each_side(slow, fast, ci95):
    result = compare(method("GRPO", slow), method("PODS", fast), resamples=20_000)
    assert result.ci95 == pytest.approx(ci95)


def rows_of(pair):
    """A pair in the three tables, without the columns that name it."""
    rows = [row("toy", pair) for _, _, row in speedup.TABLES]
    return [{key: row[key] for key in [*row][2:]} for row in rows]


def test_a_pair_has_a_row_in_each_table():
    priced = {"base": 0.0, "seeds": [0, 1], "settings": {"clock.name": "l40s"}}
    slow = method("GRPO", [[0.2, 0.4, 0.4], [0.1, 0.5, 0.6]], **priced)
    fast = method("PODS", [[0.5, 0.5, 0.5], [0.5, 0.6, 0.7]], **priced)
    pair = compare(slow, fast)
    named = [*speedup.accuracy_row("toy", pair).values()][:2]
    assert named == ["toy, time priced: l40s", "PODS vs GRPO"]
    accuracy, time, published = rows_of(pair)
    assert (accuracy["runs"], accuracy["over"]) == ("2 vs 2, paired", "1.5 h")
    assert accuracy["level, points"] == "+18.3 [-2.8, +39.5]"
    assert (time["target"], time["times as fast"]) == ("36.3%", "a bound [0.59, unbounded]")
    assert (time["mean time, capped"], time["runs short of it"]) == ("15 min vs 45 min", "0 vs 0")
    assert (published["time"], published["speed-up"]) == ("30 min vs 1.5 h", "3.00")


def test_a_row_has_a_dash_for_what_cannot_be_compared():
    late = compare(method("GRPO", [[0.5, 0.4, NAN]]), method("PODS", [[NAN, NAN, 1.0]]))
    accuracy, time, published = rows_of(late)
    assert accuracy == dict.fromkeys(accuracy, "-") | {"runs": "1 vs 1"}
    assert time == dict.fromkeys(time, "-")
    assert published["speed-up"] == "0.33"


@pytest.mark.parametrize(("runs", "speedup"), [(9, "12.00"), (10, "12.00 [9.00, 12.00]")])
def test_a_published_ratio_has_an_interval_from_ten_runs_on(runs, speedup):
    pair = compare(method("GRPO", one_by_one(12)), method("PODS", [[1.0] * 12] * runs))
    assert rows_of(pair)[2]["speed-up"] == speedup


def test_one_run_gives_no_interval():
    result = compare(method("GRPO", [[0.5, 1.0]]), method("PODS", [[1.0, 1.0], [0.9, 1.0]]))
    assert result.ci95 is result.mean_accuracy.ci95 is None
    goal = result.time_to_target
    assert (goal.target, goal.ci95) == (pytest.approx(0.99 * 0.75), None)
    assert result.level.difference == pytest.approx(0.225)


def test_arms_are_compared_up_to_the_last_mark_that_every_run_has():
    baseline = method("GRPO", [[0.5, 0.6, NAN], [0.5, 0.8, 0.1]])
    result = compare(baseline, method("PODS", [[0.5, 0.9, 1.0], [0.7, 0.9, 1.0]]))
    assert result.compared_hours == 1.0
    assert result.level.difference == pytest.approx(0.75 - 0.6)
    assert result.mean_accuracy.difference == pytest.approx((0.6 + 0.75) / 2 - (0.525 + 0.575) / 2)
    late = compare(baseline, method("PODS", [[NAN, NAN, 1.0]]))
    assert late.mean_accuracy is late.time_to_target is None
    assert speedup.accuracy_row("x", late)["over"] == "-"


@pytest.mark.parametrize(
    ("seeds", "others", "paired"),
    [
        ([1, 2, 3], [1, 2, 3], True),
        ([1, 2, 3], [1, 2, 4], False),
        ([1, 1, 2], [1, 1, 2], False),
        ([None] * 3, [None] * 3, False),  # unknown, as in published files
    ],
)
def test_runs_are_paired_where_their_seeds_match(seeds, others, paired):
    slow = method("GRPO", [[0.1], [0.5], [0.9]], seeds=seeds)
    result = compare(slow, method("PODS", [[0.2], [0.6], [1.0]], seeds=others))
    assert result.mean_accuracy.paired is result.level.paired is paired
    assert result.level.difference == pytest.approx(0.1)
    low, high = result.level.ci95
    assert (high - low < 1e-9) is paired, "every pair differs by the same 0.1"
    assert (", paired" in speedup.accuracy_row("x", result)["runs"]) is paired


def test_a_target_is_fixed_or_comes_from_the_other_runs_of_the_baseline():
    slow = method("GRPO", [[0.4, 0.8, 0.8, 0.8], [0.2, 0.3, 0.4, 0.4]], base=0.0)
    fast = method("PODS", [[0.6, 0.9, 0.9, 0.9], [0.6, 0.7, 0.9, 0.9]], base=0.0)
    fixed = compare(slow, fast, target=0.5).time_to_target
    assert (fixed.target, fixed.censored) == (0.5, [1, 0])
    assert fixed.restricted_hours == pytest.approx([(0.75 + 2) / 2, 0.25])
    crossed = compare(slow, fast).time_to_target
    assert crossed.target == pytest.approx(0.99 * (0.8 + 1.1 / 3) / 2)
    assert crossed.censored == [1, 0], "run 2 has to reach 79 %, run 1 only 36 %"
    assert crossed.restricted_hours == pytest.approx([(0.25 + 2) / 2, (0.25 + 1.25) / 2])
    five = method("GRPO", [[0.4] * 4, [0.5] * 4, [0.9] * 4, [0.1] * 4, [0.2] * 4], base=0.0)
    means = (0.5 + 0.1) / 2, (0.4 + 0.9 + 0.2) / 3
    assert compare(five, fast).time_to_target.target == pytest.approx(0.99 * np.mean(means))


def test_the_published_headlines(capsys, shared, tmp_path):
    printed(capsys, IMPORT, f"folder={shared}/reference/results", f"results_dir={tmp_path}")
    out, err = printed(capsys, SPEEDUP, "figure=all", f"results_dir={tmp_path}", "json=true")
    result = json.loads(out)
    grpo, h100s = result["gsm8k_main"], result["h100s"]
    assert (grpo["speedup"], grpo["baseline_hours"], grpo["pods_hours"]) == (2.0, 3.0, 1.5)
    assert grpo["threshold"] == pytest.approx(0.8082, abs=5e-5)
    assert [60 * h100s[key] for key in ("baseline_hours", "pods_hours")] == pytest.approx([24, 14])
    assert h100s["speedup"] == pytest.approx(24 / 14)
    assert "m_scaling" not in result, "it has no baseline"
    assert "figure=math_main" in err
    theirs = ("threshold", "baseline_hours", "pods_hours", "speedup", "ci95")
    ours = ("mean_accuracy", "level", "time_to_target")  # that of h100s had another end
    keys = [("gsm8k_main", key) for key in theirs + ours] + [("h100s", key) for key in theirs]
    paths = [ROOT / f"benchmarks/results/published_{name}.json" for name in ("gsm8k_main", "h100s")]
    stored = {name: value for path in paths for name, value in json.loads(path.read_text()).items()}
    for difference in (grpo["mean_accuracy"], grpo["level"]):
        del difference["p"]  # later than the stored files
    computed = {(name, key): result[name][key] for name, key in keys}
    assert computed == {(name, key): stored[name][key] for name, key in keys}


def test_every_published_kind_is_compared_and_exit_code_3_says_what_is_left_out(capsys, tmp_path):
    (tmp_path / "theirs").mkdir()
    published_files(tmp_path / "theirs")
    printed(capsys, IMPORT, f"folder={tmp_path / 'theirs'}", f"results_dir={tmp_path}")
    command = (SPEEDUP, f"results_dir={tmp_path}", "json=true", "resamples=100")
    result = json.loads(printed(capsys, *command, "figure=all")[0])
    speedups = {"a100s": 5, "gsm8k_main": 4, "llama_main": 2, "math_main": 3, "n_scaling": 4}
    assert {name: pair["speedup"] for name, pair in result.items()} == pytest.approx(speedups)
    assert result["llama_main"]["baseline_hours"] == pytest.approx(4 / 6), "a point is h/6"
    assert result["a100s"]["baseline_hours"] == pytest.approx(20 / 60)
    (tmp_path / "Instruct-GSM8K-512-64-16-Run2.json").write_text('{"checkpoint-100": {"gsm')
    for seed in (0, 1):
        name = f"math_qwen-grpo-n8-m8-seed{seed}"
        run_file(tmp_path, name, [0.1], dataset="math500")
        facts_file(tmp_path, name, seed=seed, prompts_per_step=seed + 1)
    for path in tmp_path.glob("Instruct-MATH-NF-512-8-8-*.json"):
        path.unlink()
    out, err = printed(capsys, *command, "figure=all", code=3)
    assert json.loads(out).keys() == {"a100s", "gsm8k_main", "llama_main", "n_scaling"}
    assert "runs of GRPO differ in prompts_per_step: 1 in" in err
    last = err.splitlines()[-1]
    assert "left out, for the reasons above: Instruct-GSM8K-512-64-16-Run2.json, math_main" in last
    printed(capsys, *command, "figure=math_main", code=2)


def test_a_threshold_that_is_never_reached_is_null(capsys, tmp_path):
    for i in (1, 2):
        run_file(tmp_path, f"Instruct-GSM8K-512-16-16-Run{i}", [0.5] * 12)
        run_file(tmp_path, f"Instruct-GSM8K-512-64-16-Run{i}", [0.1] * 12)
    command = (SPEEDUP, "figure=gsm8k_main", f"results_dir={tmp_path}", "fraction_of_best=.9")
    result = json.loads(printed(capsys, *command, "json=true")[0])["gsm8k_main"]
    assert (result["fraction_of_best"], result["threshold"]) == (0.9, 0.45)
    assert result["pods_hours"] is result["speedup"] is result["time_to_target"]["ratio"] is None
    assert result["ci95"] == [0.0, 0.0]
    shown = printed(capsys, *command)[0]
    assert " a bound [not reached, " in shown
    assert re.search(r"not reached vs 30 min +not reached\n", shown)


def test_a_ratio_whose_interval_has_no_end_is_not_shown():
    assert tables.times(0.99, [0.0, None]) == "unknown [not reached, unbounded]"
    assert tables.times(0.99, [0.5, None]) == "0.99 [0.50, unbounded]"
