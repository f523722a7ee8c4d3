"""Speed-ups: the published ratios, and intervals that can be trusted."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from pods.figures import drawing, speedup, tables
from pods.figures.curves import Series
from tests.figures import base_file, export_files, in_process, run_file

Run = Callable[..., CompletedProcess[str]]


def arm(label: str, values: list[list[float]], base: float | None = None) -> Series:
    array = np.array(values, dtype=float)
    return Series(
        label=label,
        colour=None,
        runs=[f"{label}-{i}" for i in range(len(array))],
        quantities={"value": array},
        hours=0.5 * np.arange(1, array.shape[1] + 1),
        measured=False,
        base={} if base is None else {"value": base},
    )


def compare(baseline: Series, pods: Series, resamples: int = 2000) -> speedup.Speedup:
    return speedup.compare(baseline, pods, fraction=0.99, resamples=resamples, seed=0)


NAN = float("nan")


@pytest.mark.parametrize(
    ("baseline", "pods", "hours", "line"),
    [
        pytest.param([0.2, 0.4, 1.0], [0.5, 0.99, 0.7], (1.5, 1.0), (1.4917, 1.0), id="threshold"),
        pytest.param([0.2, 1.0, 0.4], [0.9, 0.9, 0.9], (1.0, None), None, id="never reached"),
        pytest.param([0.2, NAN, 1.0], [NAN, 1.0, 1.0], (1.5, 1.0), (1.5, 1.0), id="gaps: no line"),
        pytest.param([1.0, 0.5, 0.5], [1.0, 0.5, 0.5], (0.5, 0.5), (0.5, 0.5), id="at the first"),
    ],
)
def test_the_time_is_the_first_mark_at_or_above_the_threshold(
    baseline: list[float],
    pods: list[float],
    hours: tuple[float, float | None],
    line: tuple[float, float] | None,
) -> None:
    found = compare(arm("GRPO", [baseline]), arm("PODS", [pods]))
    assert found.threshold == pytest.approx(0.99)
    assert (found.baseline_hours, found.pods_hours) == hours
    if line is None:
        assert found.speedup is found.speedup_interpolated is None
    else:
        assert found.speedup == hours[0] / hours[1]
        assert found.speedup_interpolated == pytest.approx(line[0] / line[1], rel=1e-3)


def test_the_base_starts_the_interpolated_line_but_reaches_nothing_itself() -> None:
    found = compare(arm("GRPO", [[0.5, 1.0]], base=0.0), arm("PODS", [[0.99, 1.0]], base=0.0))
    assert found.speedup_interpolated == pytest.approx((0.5 + 0.5 * 0.98) / 0.5)
    high = compare(arm("GRPO", [[0.5, 0.8]], base=0.9), arm("PODS", [[0.8, 0.8]], base=0.9))
    assert (high.baseline_hours, high.pods_hours) == (1.0, 0.5), "t > 0: training has to reach it"
    assert high.speedup_interpolated == 2.0


def test_a_baseline_that_never_scored_is_nothing_to_reach() -> None:
    found = compare(arm("GRPO", [[0.0, 0.0]] * 2), arm("PODS", [[0.0, 0.5]] * 2))
    assert found.baseline_hours is found.pods_hours is found.speedup is found.ci95 is None
    assert drawing.sentence(found).startswith("GRPO never scored above 0")
    (row,) = tables.speedup_rows("x", [found])
    assert row["speed-up"] == row["interpolated"] == "-"
    assert found.final_difference == 0.5


def test_the_bootstrap_agrees_with_all_resamples_of_three_runs() -> None:
    slow = [[0.1, 0.6, 0.9, 0.9], [0.2, 0.3, 0.4, 0.9], [0.5, 0.9, 0.9, 0.9]]
    fast = [[0.9, 0.9, 0.9, 0.9], [0.5, 0.7, 0.9, 0.8], [0.1, 0.85, 0.85, 0.85]]
    found = compare(arm("GRPO", slow), arm("PODS", fast), resamples=50_000)
    ratios, draws = [], list(itertools.product(range(3), repeat=3))
    for a in draws:
        for b in draws:
            base, pods = (
                np.mean([slow[i] for i in a], axis=0),
                np.mean([fast[i] for i in b], axis=0),
            )
            goal = 0.99 * base.max()
            hit = np.flatnonzero(pods >= goal)
            ratios.append((np.flatnonzero(base >= goal)[0] + 1) / (hit[0] + 1) if hit.size else 0)
    exact, (low, high) = np.array(ratios), found.ci95  # quantiles of few distinct values: 2-3 %
    assert np.mean(exact < low - 1e-9) < 0.03
    assert np.mean(exact <= low + 1e-9) > 0.02
    assert np.mean(exact > high + 1e-9) < 0.03
    assert np.mean(exact >= high - 1e-9) > 0.02
    assert found.probability_faster == pytest.approx(np.mean(exact > 1), abs=0.01)
    assert 0 in ratios, "the case must hold resamples in which PODS never reaches the threshold"


def test_resamples_are_seeded_and_gaps_do_not_count() -> None:
    values = np.array([[0.0, NAN], [1.0, 0.5]])
    draws = [speedup.resampled_means(values, 1000, np.random.default_rng(7)) for _ in range(2)]
    np.testing.assert_array_equal(*draws)
    assert set(np.unique(draws[0][:, 0])) == {0.0, 0.5, 1.0}
    second = draws[0][:, 1]
    assert set(np.unique(second[np.isfinite(second)])) == {0.5}
    assert np.isnan(second).mean() == pytest.approx(0.25, abs=0.05), "both draws are the first run"


def test_one_run_gives_no_interval() -> None:
    found = compare(arm("GRPO", [[0.5, 1.0]]), arm("PODS", [[1.0, 1.0], [0.9, 1.0]]))
    assert found.ci95 is found.ci95_interpolated is found.probability_faster is None
    assert found.final_difference == 0.0
    assert found.final_difference_ci95 is None


def test_the_final_difference_is_at_the_last_mark_that_both_reach() -> None:
    baseline = arm("GRPO", [[0.5, 0.6, NAN], [0.5, 0.8, NAN]])
    found = compare(baseline, arm("PODS", [[0.5, 0.9, 1.0], [0.5, 0.9, 1.0]]))
    assert found.final_hours == 1.0
    assert found.final_difference == pytest.approx(0.2)
    assert found.final_difference_ci95 == pytest.approx([0.1, 0.3])


def test_the_published_headlines(run_command: Run, shared: Path) -> None:
    done = run_command(
        "scripts/speedup.py", "figure=all", f"results_dir={shared}/reference/results", "json=true"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    grpo, h100s = found["gsm8k_main"], found["h100s"]
    assert (grpo["speedup"], grpo["baseline_hours"], grpo["pods_hours"]) == (2.0, 3.0, 1.5)
    assert grpo["threshold"] == pytest.approx(0.8082, abs=5e-5)
    assert h100s["baseline_hours"] * 60 == pytest.approx(24)
    assert h100s["pods_hours"] * 60 == pytest.approx(14)
    assert h100s["speedup"] == pytest.approx(24 / 14)
    assert grpo["ci95"] == pytest.approx([1.0, 2.67], abs=0.05)
    assert h100s["ci95"] == pytest.approx([1.0, 3.0], abs=0.05)
    assert "m_scaling" not in found, "it has no baseline"
    assert "figure=math_main" in done.stderr
    assert "skipped" in done.stderr


def published_files(folder: Path) -> None:
    """Every kind of published file, made up: speed-ups 3 (math), 2 (llama), 5 (a100s), 4 (n=64)."""
    for i in (1, 2, 10):
        slow, fast = [0.4, 0.45, 0.8, *[0.8] * 9], [0.8] * 12
        run_file(folder, f"Instruct-MATH-NF-512-8-8-Run{i}", slow, dataset="math500")
        run_file(folder, f"Instruct-MATH-NF-512-32-8-Run{i}", fast, dataset="math500")
        llama = [0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.9, 0.9, 0.9]  # 9 marks count
        run_file(folder, f"Instruct-Llama-512-16-16-0.04-Run{i}", llama)
        run_file(folder, f"Instruct-Llama-512-64-16-0.04-Run{i}", [0.1, 0.4, *[0.4] * 10])
        run_file(folder, f"Instruct-GSM8K-512-16-16-Run{i}", [0.1, 0.2, 0.3, *[0.5] * 9])
        run_file(folder, f"Instruct-GSM8K-512-64-16-Run{i}", [0.5] * 12)
        run_file(folder, f"Instruct-GSM8K-MaxR-512-64-16-Run{i}", [0.1] * 12)
        run_file(folder, f"Instruct-GSM8K-Rand-512-64-16-Run{i}", [0.2] * 12)
    base_file(folder, "base-qwen", 0.1, "math500")
    base_file(folder, "base-llama", 0.05)
    slow = [(minute, 0.1 if minute < 20 else 0.7) for minute in range(2, 32, 2)]
    fast = [(minute, 0.1 if minute < 4 else 0.7) for minute in range(2, 32, 2)]
    runs = {f"GR7B-s{s}-p8-n32-m32-ga16": slow for s in (1, 2)}
    export_files(folder, "a100s", runs | {f"GR7B-s{s}-p8-n128-m32-ga4": fast for s in (1, 3)})


def test_published_kinds_that_were_not_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    published_files(tmp_path)
    where = f"results_dir={tmp_path}"
    assert in_process("scripts/speedup.py", "figure=all", where, "json=true") == 0
    found = json.loads(capsys.readouterr().out)
    speedups = {name: values["speedup"] for name, values in found.items()}
    assert speedups == {
        "a100s": pytest.approx(5),
        "gsm8k_main": 4,
        "llama_main": pytest.approx(2),
        "math_main": 3,
        "n_scaling": 4,
    }
    assert found["llama_main"]["baseline_hours"] == pytest.approx(4 / 6), "a mark is h/6"
    assert found["a100s"]["baseline_hours"] == pytest.approx(20 / 60)
    assert in_process("scripts/speedup.py", "figure=rules", where) == 0
    printed = capsys.readouterr().out
    for pair in ("random vs max-reward", "max-variance vs max-reward", "max-variance vs random"):
        assert pair in printed


def test_a_threshold_that_is_never_reached_is_null(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for i in (1, 2):
        run_file(tmp_path, f"Instruct-GSM8K-512-16-16-Run{i}", [0.5] * 12)
        run_file(tmp_path, f"Instruct-GSM8K-512-64-16-Run{i}", [0.1] * 12)
    arguments = ("scripts/speedup.py", "figure=gsm8k_main", f"results_dir={tmp_path}")
    assert in_process(*arguments, "json=true") == 0
    found = json.loads(capsys.readouterr().out)["gsm8k_main"]
    assert found["pods_hours"] is found["speedup"] is None
    assert found["ci95"] == [0.0, 0.0]
    assert in_process(*arguments, "markdown=true") == 0
    table = capsys.readouterr().out.splitlines()
    assert table[1].count("---") == table[0].count("|") - 1
    assert "never vs 30 min" in table[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["fraction_of_best=1.5"], "fraction_of_best=1.5", id="above 1"),
        pytest.param(["resamples=0"], "resamples=0", id="no resamples"),
        pytest.param(["results_dir=absent"], "results_dir=absent: no such folder", id="folder"),
        pytest.param(["figure=gsm8k_main"], "Instruct-GSM8K-512-16-16-*", id="files"),
        pytest.param(["figure=gsm8k_mian"], "gsm8k_main", id="figure, choices listed"),
        pytest.param(["fraction=0.9"], "fraction", id="key"),
    ],
)
def test_a_mistake_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    said: str,
) -> None:
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    assert in_process("scripts/speedup.py", *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1
