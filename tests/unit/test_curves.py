"""pods/figures/reading.py and curves.py: irregular files never shift a curve."""

import contextlib
import io
import json
import re

import numpy as np
import pandas
import pytest

from pods.config import command
from pods.config.errors import UserError
from pods.figures import curves, reading
from pods.figures.figure import Absent, FigureConfig, FigureSeries, Unlike
from tests.figures import base_file, entry, facts_file, figure, run_file

NAN, RISING = float("nan"), [0.1, 0.2, 0.3, 0.4]


def read(folder, **changes):
    """The methods of `figure(**changes)`, and the warnings, a line each."""
    with contextlib.redirect_stderr(io.StringIO()) as warnings:
        series = curves.read(figure(**changes), folder, [])
    return series, warnings.getvalue()


@pytest.mark.parametrize(
    ("seconds", "samples"),
    [
        ([5.2, 10.1, 15.9], [0, 1, 2]),  # a little late, as checkpoints are
        ([5.2, 15.9], [0, -1, 1]),  # a missing one leaves its point empty
        ([3.0, 4.8, 7.0, 9.9], [1, 3, -1]),  # the nearest, not the first
        ([1.0, 5.0], [1, -1, -1]),  # before half an interval belongs to no point
        ([12.6], [-1, -1, 0]),  # more than half an interval late counts for the next
        ([7.5], [-1, 0, -1]),  # between two points counts for the later
        ([NAN, 5.0], [1, -1, -1]),  # an unknown time takes no point
    ],
)
def test_marks_of_measured_times(seconds, samples):
    table = pandas.DataFrame({"seconds": seconds, "sample": [*map(float, range(len(seconds)))]})
    rows = reading.at_points(table, np.array([5.0, 10.0, 15.0]), reach=2.5)
    assert rows["sample"].fillna(-1).tolist() == samples


def test_the_mean_is_over_runs_of_the_mean_over_repeats(tmp_path):
    with pytest.raises(Absent, match=r"matches grpo-\*, pods-\*; run evaluate_run"):
        read(tmp_path)
    (tmp_path / "grpo-Run1.json").write_text("{")
    with pytest.raises(Absent, match="; the reasons are above"):
        read(tmp_path)
    (tmp_path / "grpo-Run1.json").unlink()
    run_file(tmp_path, "grpo-Run2", [[0.2, 0.4], 0.5, 0.6, 0.7])
    run_file(tmp_path, "grpo-Run10", [[0.5] * 7, 0.5, 0.8, 0.9])
    base_file(tmp_path, "base-toy", 0.1)
    (method,), notes = read(tmp_path)
    assert "no results of GRPO-PODS" in notes
    assert method.runs == ["grpo-Run2", "grpo-Run10"]
    line = curves.to_json([method])["series"]["GRPO"]
    assert line["time_hours"] == [0, 0.5, 1, 1.5, 2]
    assert line["mean"] == pytest.approx([0.1, 0.4, 0.5, 0.7, 0.8])
    assert line["sem"] == pytest.approx([0, 0.1, 0, 0.1, 0.1]), "ddof 1: |a - b| / 2 for two runs"
    assert line["n_runs"] == [1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("content", "mean", "note"),
    [
        ([0.1, [], 0.3, 0.4], [0.1, NAN, 0.3, 0.4], "at steps 200"),
        ([0.1, [None, "x", NAN], 0.3], [0.1, NAN, 0.3, NAN], "at steps 200"),
        ([0.1, [0.2, NAN], 0.3, 0.4], RISING, ""),  # the other repeats count
    ],
)
def test_holes_stay_where_they_are_and_are_named(tmp_path, content, mean, note):
    run_file(tmp_path, "grpo-Run1", content)
    (method,), notes = read(tmp_path)
    np.testing.assert_allclose(method.quantities["value"][0], mean)
    assert ("grpo-Run1" in notes) == bool(note)
    assert note in notes
    hours = curves.to_json([method])["series"]["GRPO"]["time_hours"]
    assert hours == [0.5 * (i + 1) for i in np.flatnonzero(np.isfinite(mean))], "absent, not null"


def test_an_unusable_run_is_left_out_by_name(tmp_path):
    run_file(tmp_path, "grpo-Run1", RISING)
    another_data_set = json.dumps({"checkpoint-1": {"math500": entry(0.5)}})
    for i, content in enumerate(['{"checkpoint-100": {"gsm8k', "{}", another_data_set], 2):
        (tmp_path / f"grpo-Run{i}.json").write_text(content)
    (method,), notes = read(tmp_path)
    assert method.runs == ["grpo-Run1"]
    run_file(tmp_path, "grpo-Run5", [[None], [None]])
    left_out = []
    curves.read(figure(), tmp_path, left_out)
    names = ["grpo-Run2.json", "grpo-Run3.json", "grpo-Run4.json", "grpo-Run5"]
    assert left_out == names
    assert all(re.search(f"grpo-Run{i}.*left out", notes) for i in (2, 3, 4))


def test_the_runs_of_an_arm_are_in_the_order_of_their_seeds(tmp_path):
    for i in (0, 1):
        metas = [{"train_seconds": 1800.0 * (k + 1)} for k in range(4)]
        run_file(tmp_path, f"grpo-{i}", RISING, metas=metas)
        facts_file(tmp_path, f"grpo-{i}", seed=8 - i, clock={"name": "l40s"})
    base_file(tmp_path, "base-toy", 0.05)
    seconds = {"generate": 1.0, "update": 2.0}
    methods = {"GRPO": FigureSeries(runs=["grpo-*"], colour="C1", seconds_per_step=seconds)}
    ((method,), _) = read(tmp_path, series=methods)
    assert (method.label, method.colour, method.clock) == ("GRPO", "C1", "l40s")
    assert (method.runs, method.seeds) == (["grpo-1", "grpo-0"], [7, 8])
    assert (method.measured, method.seconds_per_step) == (True, None)
    assert method.base == {"value": 0.05, "length": 50.0}
    for path in tmp_path.glob("*.meta.json"):
        path.write_text('{"published": {"by_index": true}}')
    ((method,), _) = read(tmp_path, series=methods)
    assert (method.runs, method.seeds) == (["grpo-0", "grpo-1"], [None, None])
    assert (method.measured, method.seconds_per_step) == (False, seconds)


def test_a_single_arm_is_drawn_by_sampled_and_by_greedy_completions(tmp_path):
    toy = figure(series={"GRPO": FigureSeries(runs=["grpo-*"], colour="C1")})
    drawn = []
    for greedy in (None, 0.5):
        run_file(tmp_path, "grpo-0", RISING, greedy=greedy)
        lines = curves.by_both(toy, curves.read(toy, tmp_path, []), tmp_path)
        drawn.append([(a.label, a.colour, a.quantities["value"][0, 1]) for a in lines])
    sampled = ("GRPO, sampled", "C1", 0.2)
    assert drawn == [[sampled], [sampled, ("GRPO, greedy", None, 0.1)]]


def of_command(**keys):
    values = {
        "runs": {},
        "output_dir": "",
        "results_dir": "",
        "metric": None,
        "dataset": None,
    } | keys
    return curves.figures(FigureConfig(**values))


def test_runs_without_a_figure_have_their_own_axes(tmp_path):
    run_file(tmp_path, "a-seed0", [0.1])
    facts_file(tmp_path, "a-seed0", checkpoint={"every_seconds": 600.0})
    (runs,) = of_command(runs={"A": ["a-*"]}, results_dir=str(tmp_path))
    assert runs.key == "runs", "no message names a key that nobody typed"
    assert (runs.dataset, runs.base) == ("gsm8k", ["base-tiny"])
    assert (runs.grid_seconds, runs.budget_seconds, runs.time_unit) == (600, 7200, "minutes")


def test_the_figures_that_a_command_asks_for(capsys):
    everything = curves._named("all")
    assert [made.name for made in of_command()] == ["quickstart"]
    assert [made.dataset for made in of_command(dataset="math500")] == ["math500"]
    names = [made.name for made in of_command(figure=everything)]
    assert names == sorted(names)
    assert {"quickstart", "gsm8k_main"} <= {*names}
    assert "all" not in names
    main = curves._named("gsm8k_main")
    (runs,) = of_command(figure=main, runs={"A": ["a-*"]}, metric="for_acc")
    assert (runs.name, runs.metric, [*runs.series]) == ("runs", "for_acc", ["A"])
    assert (runs.dataset, runs.grid_seconds) == ("gsm8k", 1800)
    assert "gsm8k for_acc, every 1800 s" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"^figure\.budget_seconds=60\.0: "):
        of_command(figure=everything.model_copy(update={"budget_seconds": 60.0}))
    with pytest.raises(UserError, match=r"^figure\.title=Mine: beside runs="):
        of_command(figure=main.model_copy(update={"title": "Mine"}), runs={"A": ["a-*"]})


def test_all_figures_are_also_those_of_a_folder_of_the_users(tmp_path, monkeypatch):
    (tmp_path / "figure").mkdir()
    (tmp_path / "figure" / "mine.yaml").write_text("defaults: [gsm8k_main, _self_]\nname: mine\n")
    monkeypatch.setattr(command, "SEARCHED", [*command.SEARCHED, tmp_path])
    monkeypatch.setattr(curves, "SEARCHED", command.SEARCHED)
    names = [made.name for made in of_command(figure=curves._named("all"))]
    assert {"mine", "gsm8k_main"} <= {*names}


def test_one_arm_is_too_few_where_two_are_needed_and_a_folder_must_be_there(tmp_path):
    run_file(tmp_path, "grpo-0", RISING)
    with pytest.raises(Absent, match="only GRPO has results"):
        curves.read(figure(), tmp_path, [], fewest=2)
    with pytest.raises(UserError, match="none: no such folder"):
        read(tmp_path / "none")


def test_a_checkpoint_stands_at_the_point_nearest_to_its_time(tmp_path):
    seconds = (1803.0, 5420.0, 7210.0)
    metas = [{"train_seconds": s} for s in seconds]
    run_file(tmp_path, "grpo-Run1", [0.1, 0.3, 0.4], metas=metas)
    (method,), notes = read(tmp_path)
    assert method.measured
    np.testing.assert_allclose(method.quantities["value"][0], [0.1, NAN, 0.3, 0.4])
    np.testing.assert_allclose(method.quantities["seconds"][0], [1803, NAN, 5420, 7210])
    assert "grpo-Run1: no checkpoint near 3600 s" in notes


def test_an_arm_of_different_settings_and_a_checkpoint_0_are_named(tmp_path):
    for name in ("grpo-n16-seed0", "grpo-n16-seed1"):
        run_file(tmp_path, name, RISING)
    metas = [{"train_seconds": 1800.0 * k} for k in range(5)]
    run_file(tmp_path, "grpo-n4-seed0", [0.0, *RISING], steps=range(0, 500, 100), metas=metas)
    (method,), notes = read(tmp_path)
    np.testing.assert_allclose(method.quantities["value"], [RISING] * 3)
    assert "grpo-n4-seed0: checkpoint-0 is dropped" in notes
    (method,), notes = read(tmp_path, base=[])
    assert "dropped" not in notes
    assert method.start("value").tolist() == [0.0], "without a base time 0 is checkpoint-0"
    for i, path in enumerate(tmp_path.glob("*.json")):
        facts_file(tmp_path, path.stem, seed=i, lora={"rank": 8}, threads=i)
    assert "differ" not in read(tmp_path)[1], "equal in all but what a resume may change"
    facts_file(tmp_path, "grpo-n4-seed0", lora={"rank": 4})
    assert "runs of GRPO differ in lora.rank: 4 in grpo-n4-seed0; 8 in " in read(tmp_path)[1]


@pytest.mark.parametrize(
    ("metric", "mean"),
    [
        ("ans_acc", [0.08, *RISING]),
        ("both_acc", [0.02, 0.025, 0.05, 0.075, 0.1]),
        ("pass@3", [0.4, 0.5, 0.6, 0.7, 0.8]),
    ],
)
def test_a_figure_shows_its_own_metric(tmp_path, metric, mean):
    base, *others = [{"pass@k": {"gsm8k": {"3": value}}} for value in (0.4, 0.5, 0.6, 0.7, 0.8)]
    run_file(tmp_path, "grpo-Run1", RISING, metas=others)
    base_file(tmp_path, "base-toy", 0.08)
    (tmp_path / "base-toy.meta.json").write_text(json.dumps({"details": base}))
    methods = curves.to_json(read(tmp_path, metric=metric)[0])["series"]
    assert methods["GRPO"]["mean"] == pytest.approx(mean)
    run_file(tmp_path, "pods-0", RISING)
    assert "pods-0: has no gsm8k pass@9; evaluate it with repeats=9 pass_at=[9], or" in (
        read_without(tmp_path, "pass@9")
    )


def read_without(folder, metric):
    """The warnings of a figure whose runs all lack the metric."""
    with contextlib.redirect_stderr(io.StringIO()) as warnings, pytest.raises(UserError):
        curves.read(figure(metric=metric), folder, [])
    return warnings.getvalue()


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("optimizer.learning_rate", {"optimizer": {"learning_rate": 0.002}}),
        ("scored.temperature", {"scored": {"temperature": 0.2, "engine": "transformers"}}),
    ],
)
def test_unlike_runs_are_refused(tmp_path, key, change):
    for i, changes in enumerate([{}, {}, change]):
        run_file(tmp_path, f"grpo-{i}", [0.1, 0.2, 0.3, 0.4 + 0.1 * i])
        facts_file(tmp_path, f"grpo-{i}", **{"seed": 2 - i} | changes)
    with pytest.raises(Unlike, match=f"runs of GRPO differ in {key}: .* in grpo-0, grpo-1"):
        read(tmp_path)


def graded_by(version):
    return {"scores": {"gsm8k": {"rewards": {version: {}}}}}


def test_unlike_graders_are_refused_in_a_method_and_named_between_methods(tmp_path):
    run_file(tmp_path, "grpo-0", RISING, metas=[graded_by("v1")] * 4)
    thrice = [[accuracy] * 3 for accuracy in RISING]
    run_file(tmp_path, "pods-0", thrice, metas=[graded_by("v2"), *[graded_by("strict")] * 3])
    facts_file(tmp_path, "grpo-0")
    facts_file(tmp_path, "pods-0", scored={"temperature": 0.3})
    notes = read(tmp_path)[1]
    both = '"v1" in GRPO; "strict and v2" in GRPO-PODS'
    assert f"figure=toy: methods differ in scored.rewards: {both}" in notes
    assert "figure=toy: methods differ in repeats: 2 in GRPO; 3 in GRPO-PODS" in notes
    assert (
        "figure=toy: methods differ in scored.temperature: 1.0 in GRPO; 0.3 in GRPO-PODS" in notes
    )
    run_file(tmp_path, "grpo-1", RISING, metas=[graded_by("v2")] * 4)
    facts_file(tmp_path, "grpo-1", seed=1)
    with pytest.raises(Unlike, match=r"GRPO differ in scored\.rewards"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("scored", "note"),
    [
        ({"engine": "transformers", "seed": 3}, ""),  # no other scores but for rounding and draws
        ({"temperature": 0.3}, "base-toy: scored.temperature=0.3, there 1.0; no point at time 0"),
        ({"digest": "b"}, "base-toy: scored.digest=b, there a; no point at time 0"),
    ],
    ids=["alike", "another temperature", "other questions"],
)
def test_a_base_that_was_scored_otherwise_is_no_point(tmp_path, scored, note):
    run_file(tmp_path, "grpo-0", RISING)
    facts_file(tmp_path, "grpo-0", scored={"digest": "a"})
    base_file(tmp_path, "base-toy", 0.05)
    facts_file(tmp_path, "base-toy", scored={"digest": "a"} | scored)
    (method,), notes = read(tmp_path)
    assert (note in notes, bool(method.base)) == (True, not note)


def test_unlike_repeats_of_our_runs_are_refused(tmp_path):
    run_file(tmp_path, "grpo-0", [[0.1] * 5, 0.2, 0.3, 0.4])
    run_file(tmp_path, "grpo-1", RISING)
    assert "runs of GRPO differ in repeats: 5 in grpo-0; 2 in grpo-1; averaged" in read(tmp_path)[1]
    for i in (0, 1):
        facts_file(tmp_path, f"grpo-{i}", model={"name": "tiny", "path": f"/home/{i}/policy"})
    with pytest.raises(Unlike, match="GRPO differ in repeats: 5 in grpo-0; 2 in grpo-1"):
        read(tmp_path)


def test_the_seconds_of_two_clocks_are_never_compared(tmp_path):
    for name in ("grpo-0", "pods-0"):
        run_file(tmp_path, name, RISING)
        facts_file(tmp_path, name, clock={"name": "l40s"})
    assert [method.clock for method in read(tmp_path)[0]] == ["l40s", "l40s"]
    facts_file(tmp_path, "pods-0", clock={"name": "measured"})
    with pytest.raises(Unlike, match="l40s of GRPO, measured of GRPO-PODS"):
        read(tmp_path)


def test_runs_that_end_before_the_first_point_have_their_own_axis_or_the_remedy(tmp_path, capsys):
    """checkpoint.every_seconds was longer than the run."""
    for name in ("grpo-1", "pods-1"):
        run_file(tmp_path, name, [0.1, 0.2, 0.3], interval=0.5)
        facts_file(tmp_path, name, checkpoint={"every_seconds": 5.0})
    axes = curves.axes_of(figure(), tmp_path)
    assert (axes["grid_seconds"], axes["budget_seconds"]) == (0.5, 1.5)
    with pytest.raises(Absent):
        curves.read(figure(grid_seconds=5.0), tmp_path, [])
    assert "at an evaluation point (every figure.grid_seconds=5 to " in capsys.readouterr().err


def test_runs_that_saved_by_steps_have_an_axis_of_their_own_times(tmp_path):
    """The slowest run's points and the longest run's end; a fast run is not before the first."""
    for name, pause in {"grpo-1": 0.5, "pods-1": 0.8}.items():
        metas = [{"train_seconds": pause * (i + 1)} for i in range(3)]
        run_file(tmp_path, name, [0.1, 0.2, 0.3], metas=metas)
        facts_file(tmp_path, name, budget={"train_seconds": None})
    axes = curves.axes_of(figure(), tmp_path)
    assert (axes["grid_seconds"], axes["budget_seconds"]) == (pytest.approx(0.8), 3 * 0.8)
    methods = curves.read(figure(**axes), tmp_path, [])
    assert [len(method.runs) for method in methods] == [1, 1]
    assert methods[1].quantities["value"].tolist() == [[0.1, 0.2, 0.3]]
