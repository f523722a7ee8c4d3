"""scripts/plot.py and speedup.py on files: what is drawn, compared, left out and refused."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from pods.figures import curves, drawing
from pods.figures.figure import Series
from tests.figures import base_file, facts_file, figure, printed, run_file

PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-"
PLOT, SPEEDUP = "scripts/plot.py", "scripts/speedup.py"


def method_files(folder, methods, seeds, grid, dataset):
    """Runs of methods {name: slope} with times a little after the points, and their base."""
    for (method, slope), seed in itertools.product(methods.items(), range(seeds)):
        metas = [{"train_seconds": grid * k + 0.3} for k in (1, 2, 3, 4)]
        accuracies = [slope * k + 0.01 * seed for k in (1, 2, 3, 4)]
        run_file(
            folder, f"{method}-seed{seed}", accuracies, dataset=dataset, metas=metas, greedy=0.5
        )
        facts_file(folder, f"{method}-seed{seed}", seed=seed)
    base_file(folder, "base-tiny", 0.02, dataset)


def test_quickstart_is_a_curve_per_arm_with_bands_from_measured_times(capsys, tmp_path):
    methods = {"grpo-n4-m4": 0.1, "grpo_ga-n8-m8": 0.05, "pods-max_variance-n8-m4": 0.2}
    methods = {f"quickstart-{method}": slope for method, slope in methods.items()}
    method_files(tmp_path, methods, 2, 5, "arithmetic")
    keys = ("~figure.series.GRPO-GA", f"results_dir={tmp_path}", f"out_dir={tmp_path}/out")
    out = tmp_path / "out" / "quickstart"
    assert printed(capsys, PLOT, "figure=quickstart", *keys) == (f"{out}\n", "")
    assert (out / "main.txt").read_text().count("Mean over runs (GRPO: 2, GRPO-PODS: 2).") == 1
    formats = {"main.png": PNG, "length.png": PNG, "main.pdf": PDF}
    drawn = {name: (out / name).read_bytes()[: len(start)] for name, start in formats.items()}
    assert drawn == formats
    assert b"/FontFile2" in (out / "main.pdf").read_bytes(), "fonts are embedded as TrueType"
    series = json.loads((out / "curves.json").read_text())["series"]
    assert list(series) == ["GRPO", "GRPO-PODS"]
    assert series["GRPO-PODS"]["time_hours"] == pytest.approx([k * 5 / 3600 for k in range(5)])
    both = [0.25 * value for value in (0.02, 0.205, 0.405, 0.605, 0.805)]  # the figure's metric
    assert series["GRPO-PODS"]["mean"] == pytest.approx(both)


@pytest.mark.parametrize(("runs", "lines", "bands"), [(1, 1, 0), (2, 3, 0), (4, 1, 1), (5, 1, 1)])
def test_few_runs_are_drawn_one_by_one(runs, lines, bands):
    values = np.array([[0.5, 0.6], [0.4, 0.8], [0.45, 0.7], [0.6, 0.65], [0.5, 0.75]])[:runs]
    method = Series("GRPO", None, ["a"] * runs, {"value": values}, np.array([0.5, 1.0]), False)
    axes = Figure().subplots()
    drawing._curves(axes, figure(), [method], "value")
    shown = [c for c in axes.collections if np.isfinite(c.get_datalim(axes.transData).y1)]
    assert (len(axes.lines), len(shown)) == (lines, bands)
    low, high = axes.get_ylim()
    assert 30 < low < high < 90, "two runs have no band: it would be 13 standard errors high"


@pytest.mark.parametrize("drawn", ["", ".greedy"])
def test_any_runs_are_compared_on_the_axes_of_a_figure(capsys, monkeypatch, tmp_path, drawn):
    monkeypatch.setattr(drawing, "save", lambda *_: None)  # takes seconds
    method_files(tmp_path, {"mine": 0.1, "yours": 0.15}, 3, 10, "gsm8k")
    where = (f"results_dir={tmp_path}", "runs={Mine:[mine-*],Yours:[yours-*]}")
    data = f"dataset=gsm8k{drawn}"
    axes = ("figure=quickstart", "figure.grid_seconds=10", data, "metric=ans_acc")
    pairs = json.loads(printed(capsys, SPEEDUP, *where, *axes, "json=true")[0])
    assert [*pairs] == ([f"runs{drawn}"] if drawn else ["runs", "runs.greedy"])
    pair = pairs[f"runs{drawn}"]
    assert (pair["baseline"], pair["pods"]) == ("Mine", "Yours")
    assert pair["mean_accuracy"]["runs"] == [3, 3]
    printed(capsys, PLOT, *where, *axes, f"out_dir={tmp_path}/out")
    caption = (tmp_path / f"out/runs{drawn}/main.txt").read_text()
    assert ("greedy" in caption) == bool(drawn)
    assert ("temperature 1" in caption) != bool(drawn)
    curves = json.loads((tmp_path / f"out/runs{drawn}/curves.json").read_text())["series"]
    expected = [0.08, 0.155, 0.23, 0.305] if drawn else [0.02, 0.16, 0.31, 0.46, 0.61]
    assert curves["Yours"]["mean"] == pytest.approx(expected)  # no base point has greedy scores
    printed(capsys, SPEEDUP, *where)  # the only data set that they share, not quickstart's
    error = printed(capsys, SPEEDUP, *where, "dataset=arithmetic", code=2)[1]
    assert "mine-seed0: no data set arithmetic but gsm8k, gsm8k.greedy; set dataset" in error


def test_every_label_is_text_and_in_the_legend(tmp_path):
    """Also one with the signs of a formula, and one that matplotlib would hide."""
    values = {"value": np.ones((1, 2)), "length": np.ones((1, 2))}
    labels = ["_A $x_1$", "B $\\frac{"]
    methods = [Series(label, None, ["a"], values, np.array([0.5, 1.0]), False) for label in labels]
    picture = drawing.length_figure(figure(), methods)
    drawing.save(picture, tmp_path / "length")
    texts = [text.get_text().strip() for text in picture.legends[0].get_texts()]
    assert texts == [f"{label} (1 run)" for label in labels]


def method_of_two_runs():
    quantities = {
        "steps": np.array([[10.0, 20.0], [20.0, np.nan]]),
        "seconds": np.array([[30.0, 80.0], [60.0, np.nan]]),
    }
    return Series("GRPO", None, ["a", "b"], quantities, np.array([0.5, 1.0]), True)


def test_a_mean_ends_with_the_first_run_of_the_arm_and_the_command_says_so(capsys, tmp_path):
    methods = {"quickstart-grpo-n4-m4": 0.1, "quickstart-pods-max_variance-n8-m4": 0.2}
    method_files(tmp_path, methods, 2, 5, "arithmetic")
    path = tmp_path / "quickstart-grpo-n4-m4-seed1.json"
    short = dict([*json.loads(path.read_text()).items()][:2])
    path.write_text(json.dumps(short))
    keys = ("figure=quickstart", f"results_dir={tmp_path}", f"out_dir={tmp_path}/out")
    said = printed(capsys, PLOT, "~figure.series.GRPO-GA", *keys).err
    ends = "grpo-n4-m4-seed1: ends first of GRPO, whose mean is drawn up to there"
    assert said == f"warning: quickstart-{ends}\n"
    found = json.loads(printed(capsys, SPEEDUP, "json=true", *keys[:2]).out)
    pair = found["quickstart"]
    level = np.mean([0.2, 0.21])  # of both runs at the second point; one alone goes on to 0.4
    assert pair["threshold"] == pytest.approx(0.99 * 0.25 * level)


def test_seconds_a_step_are_those_of_each_run_up_to_its_end():
    assert method_of_two_runs().seconds_a_step().tolist() == [80 / 20, 60 / 20]


def test_an_axis_of_priced_seconds_says_so():
    method = method_of_two_runs()
    toy = figure(time_unit="minutes")
    lengths = dict.fromkeys(("length", "value"), np.ones((2, 2)))
    priced = replace(method, quantities=lengths, settings={"clock.name": "l40s"})
    picture = drawing.length_figure(toy, [priced])
    assert picture._suptitle.get_text() == "Toy: completion length"
    assert picture.axes[0].get_xlabel() == "Training time, minutes, priced: l40s"


def test_runs_are_drawn_on_the_only_data_set_that_they_share(capsys, tmp_path):
    for method in ("a", "b"):
        run_file(tmp_path, method, [0.1, 0.2], dataset="arithmetic.sample")
        settings = {"task": {"name": "arithmetic"}, "model": {"name": "tiny"}}
        settings |= {"checkpoint": {"every_seconds": 1.0}, "budget": {"train_seconds": 4.0}}
        facts_file(tmp_path, method, train=settings)
    paths = sorted(tmp_path.glob("[ab].json"))
    assert curves.only_dataset(paths) == "arithmetic.sample"
    run_file(tmp_path, "b", [0.1, 0.2], dataset="gsm8k")
    assert curves.only_dataset(paths) is None
