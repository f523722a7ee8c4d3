"""scripts/plot.py and speedup.py on files: what is drawn, compared, left out and refused."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from pods.figures import drawing
from pods.figures.curves import Series
from tests.figures import base_file, facts_file, figure, printed, refused, run_file

PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-"
PLOT, SPEEDUP = "scripts/plot.py", "scripts/speedup.py"


def quickstart_files(folder: Path) -> None:
    """Four arms, two seeds each, with measured times a little after the 5 s marks."""
    arms = {"grpo-all-n16-m16": 0.1, "grpo_ga-all-n32-m32": 0.05, "pods-max_variance-n32-m16": 0.2}
    arms |= {"grpo-all-n24-m24": 0.15}
    metas = [{"train_seconds": 5 * k + 0.3, "tokens_generated": k * 1000} for k in (1, 2, 3, 4)]
    for (arm, slope), seed in itertools.product(arms.items(), (0, 1)):
        accuracies = [slope * k + 0.01 * seed for k in (1, 2, 3, 4)]
        name = f"quickstart-{arm}-seed{seed}"
        run_file(folder, name, accuracies, dataset="arithmetic", metas=metas)
    base_file(folder, "base-tiny", 0.02, "arithmetic")


def test_quickstart_is_a_curve_per_arm_with_bands_from_measured_times(capsys, tmp_path):
    quickstart_files(tmp_path)
    keys = ("~figure.series.GRPO-GA", f"results_dir={tmp_path}", f"out_dir={tmp_path}/out")
    out = tmp_path / "out" / "quickstart"
    assert printed(capsys, PLOT, "figure=quickstart", *keys) == (f"{out}\n", "")
    for name, magic in (("main.png", PNG), ("length.png", PNG), ("main.pdf", PDF)):
        assert (out / name).read_bytes().startswith(magic)
    assert b"/FontFile2" in (out / "main.pdf").read_bytes(), "fonts are embedded as TrueType"
    series = json.loads((out / "curves.json").read_text())["series"]
    assert list(series) == ["GRPO", "GRPO-equal-cost", "GRPO-PODS"]
    assert series["GRPO-PODS"]["time_hours"] == pytest.approx([k * 5 / 3600 for k in range(5)])
    both = [0.25 * value for value in (0.02, 0.205, 0.405, 0.605, 0.805)]  # the figure's metric
    assert series["GRPO-PODS"]["mean"] == pytest.approx(both)
    assert series["GRPO-PODS"]["sem"] == pytest.approx([0, *[0.25 * 0.005] * 4])
    assert series["GRPO-PODS"]["n_runs"] == [1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("runs", "lines", "bands"),
    [
        pytest.param(1, 1, 0, id="one run has no band"),
        pytest.param(2, 3, 1, id="two runs: both, and their band"),
        pytest.param(4, 5, 1, id="four runs: all"),
        pytest.param(5, 1, 1, id="five runs: the band alone"),
    ],
)
def test_few_runs_are_drawn_one_by_one(runs, lines, bands):
    values = np.array([[0.5, 0.6], [0.4, 0.8], [0.45, 0.7], [0.6, 0.65], [0.5, 0.75]])[:runs]
    arm = Series("GRPO", None, ["a"] * runs, {"value": values}, np.array([0.5, 1.0]), True)
    axes = Figure().subplots()
    drawing._curves(axes, figure(), [arm], "value", "time")
    shown = [c for c in axes.collections if np.isfinite(c.get_datalim(axes.transData).y1)]
    assert (len(axes.lines), len(shown)) == (lines, bands)
    low, high = axes.get_ylim()
    assert 30 < low < high < 90, "a band of 13 standard errors does not flatten the curves"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["figure=math_main"], "Instruct-MATH-NF-512-8-8-*", id="files are absent"),
        pytest.param(["x=tokens"], "tokens_trained", id="unknown axis, choices listed"),
        pytest.param(["metric=acc"], "both_acc", id="unknown metric, choices listed"),
        pytest.param(["results_dir=absent"], "results_dir=absent", id="no such folder"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    quickstart_files(Path("results"))
    assert words in refused(capsys, PLOT, *arguments)


def test_any_runs_are_compared_on_the_axes_of_a_figure(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(drawing, "save", lambda *_: None)  # takes seconds
    for (arm, slope), seed in itertools.product((("mine", 0.1), ("yours", 0.15)), (0, 1, 2)):
        metas = [{"train_seconds": 10 * k + 0.2} for k in (1, 2, 3, 4)]
        values = [slope * k + 0.01 * seed for k in (1, 2, 3, 4)]
        run_file(tmp_path, f"{arm}-seed{seed}", values, metas=metas)
        facts_file(tmp_path, f"{arm}-seed{seed}", seed=seed)
    base_file(tmp_path, "base-tiny", 0.02)
    where = (f"results_dir={tmp_path}", "runs={Mine:[mine-*],Yours:[yours-*]}")
    axes = ("figure=quickstart", "figure.grid_seconds=10", "dataset=gsm8k", "metric=ans_acc")
    pair = json.loads(printed(capsys, SPEEDUP, *where, *axes, "json=true")[0])["runs"]
    assert (pair["baseline"], pair["pods"]) == ("Mine", "Yours")
    assert pair["compared_hours"] == pytest.approx(40 / 3600)
    assert (pair["mean_accuracy"]["runs"], pair["mean_accuracy"]["paired"]) == ([3, 3], True)
    printed(capsys, PLOT, *where, *axes, f"out_dir={tmp_path}/out")
    curves = json.loads((tmp_path / "out/runs/curves.json").read_text())["series"]
    assert curves["Yours"]["mean"] == pytest.approx([0.02, 0.16, 0.31, 0.46, 0.61])
    assert curves["Yours"]["time_hours"] == pytest.approx([10 * k / 3600 for k in range(5)])
    assert "no arithmetic both_acc" in printed(capsys, SPEEDUP, *where, code=2)[1]


def toy_arm() -> Series:
    steps = np.array([[10.0, 20.0], [20.0, np.nan]])
    seconds = np.array([[30.0, 80.0], [60, np.nan]])
    quantities = {"steps": steps, "seconds": seconds, "tokens_trained": np.full((2, 2), np.nan)}
    return Series("GRPO", None, ["a", "b"], quantities, np.array([0.5, 1.0]), True)


def test_axes_and_seconds_per_step():
    toy = figure(gpus=8, time_unit="minutes")
    assert drawing.x_values(toy, toy_arm(), "time").tolist() == [30, 60]
    assert drawing.x_values(toy, toy_arm(), "gpu_hours").tolist() == [4, 8]
    assert drawing.x_values(toy, toy_arm(), "steps").tolist() == [15, 20], "mean over runs"
    assert drawing.seconds_per_step(toy_arm()) == pytest.approx((80 / 20 + 60 / 20) / 2)
    with pytest.raises(Exception, match="x=tokens_trained: the results of GRPO do not have it"):
        drawing.x_values(toy, toy_arm(), "tokens_trained")
    priced = replace(toy_arm(), quantities={"length": np.ones((2, 2))}, clock="l40s")
    title = drawing.length_figure(toy, [priced])._suptitle.get_text()
    assert "; time priced: l40s: completion length" in title
