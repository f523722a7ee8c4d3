"""pods/figures/published.py, reading.py and curves.py: irregular files never shift a curve."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pods.config.errors import UserError
from pods.figures import curves, published, reading
from pods.figures.curves import Series
from pods.figures.figure import Absent, Figure, FigureSeries, Unlike, WandbExport
from tests.figures import base_file, entry, export_files, facts_file, figure, run_file


def load(figure: Figure, folder: Path) -> list[Series]:
    """The arms alone."""
    return curves.read(figure, folder)[0]


def texts(figure: Figure, folder: Path) -> str:
    """The notes, a line each."""
    return "\n".join(note.text for note in curves.read(figure, folder)[1])


HEALTHY = [210, 418, 627, 851, 1068, 1271, 1494, 1720, 1957, 2180, 2423, 2649]
# Two real runs: the steps of an aborted attempt stand between those of the second one.
RUN9 = [171, 204, 351, 485, 772, 1031, 1348, 1622, 1867, 2138, 2394, 2630, 2859, 3078]
RUN10 = [181, 210, 359, 426, 666, 877, 1121, 1382, 1669, 1963, 2233, 2514, 2785, 3092]
INTERLEAVED = [None, 1, None, *range(2, 13)]


@pytest.mark.parametrize(
    ("steps", "marks", "said"),
    [
        pytest.param(HEALTHY, [*range(1, 13)], "", id="complete"),
        pytest.param(
            [50, 300, *HEALTHY[2:]], [*range(1, 13)], "", id="uneven, but the expected count"
        ),
        pytest.param(RUN9, INTERLEAVED, "171, 351", id="aborted attempt, Run9"),
        pytest.param(RUN10, INTERLEAVED, "181, 359", id="aborted attempt, Run10"),
        pytest.param([*HEALTHY, 2660], [*range(1, 13), None], "2660", id="a last save too close"),
        pytest.param(
            HEALTHY[:4] + HEALTHY[5:], [1, 2, 3, 4, *range(6, 13)], "before step 1271", id="hole"
        ),
        pytest.param(HEALTHY[1:], [*range(2, 13)], "before step 418", id="hole at the start"),
        pytest.param(
            [*HEALTHY[:3], *HEALTHY[5:]], [1, 2, 3, *range(6, 13)], "before step 1271", id="two"
        ),
        pytest.param(
            [*HEALTHY[:4], *HEALTHY[5:10]],
            [1, 2, 3, 4, *range(6, 11)],
            "ends early",
            id="hole, and killed later",
        ),
        pytest.param(HEALTHY[:8], [*range(1, 9)], "ends early", id="killed after two thirds"),
        pytest.param(
            [*HEALTHY, 2880], [*range(1, 14)], "the first 12 count", id="went on after the budget"
        ),
        pytest.param([], [], "", id="nothing"),
        pytest.param(
            sorted([*range(100, 1300, 100), *range(120, 1320, 100)]),
            [None] * 24,
            "left out",
            id="two whole attempts",
        ),
    ],
)
def test_marks_of_published_checkpoints(
    steps: list[int], marks: list[int | None], said: str
) -> None:
    found = published.by_index(steps, 12)
    notes = published.remarks(steps, found, 12)
    assert found == marks
    assert said in "; ".join(notes)
    assert bool(notes) == bool(said), "what is done is said, and nothing else"


def test_eight_of_a_list_are_named() -> None:
    assert published.listed([*range(8)]) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert published.listed([*range(9)]) == "0, 1, 2, 3, 4, 5, 6, 7, ..."


@pytest.mark.parametrize(
    ("seconds", "samples"),
    [
        pytest.param([5.2, 10.1, 15.9], [0, 1, 2], id="a little late, as checkpoints are"),
        pytest.param([5.2, 15.9], [0, -1, 1], id="a missing one leaves its mark empty"),
        pytest.param([5.2, 6.0, 9.9], [0, 2, -1], id="the mark takes the nearer of two"),
        pytest.param([3.0, 4.8, 7.0, 9.9], [1, 3, -1], id="the nearest, not the first"),
        pytest.param([1.0, 5.0], [1, -1, -1], id="before half an interval belongs to no mark"),
        pytest.param([12.6], [-1, -1, 0], id="more than half an interval late counts for the next"),
        pytest.param([7.5], [-1, 0, -1], id="between two marks counts for the later"),
        pytest.param([np.nan, 5.0], [1, -1, -1], id="an unknown time takes no mark"),
        pytest.param([], [-1, -1, -1], id="no sample"),
    ],
)
def test_marks_of_measured_times(seconds: list[float], samples: list[int]) -> None:
    found = reading.nearest(np.array(seconds), np.array([5.0, 10.0, 15.0]), reach=2.5)
    assert found.tolist() == samples


def test_the_mean_is_over_runs_of_the_mean_over_repeats(tmp_path: Path) -> None:
    run_file(tmp_path, "grpo-Run2", [[0.2, 0.4], 0.5, 0.6, 0.7])
    run_file(tmp_path, "grpo-Run10", [[0.5] * 7, 0.5, 0.8, 0.9])
    base_file(tmp_path, "base-toy", 0.1)
    (arm,) = load(figure(), tmp_path)
    assert arm.runs == ["grpo-Run2", "grpo-Run10"]
    line = curves.to_json([arm])["series"]["GRPO"]
    assert line["time_hours"] == [0, 0.5, 1, 1.5, 2]
    assert line["mean"] == pytest.approx([0.1, 0.4, 0.5, 0.7, 0.8])
    assert line["sem"] == pytest.approx([0, 0.1, 0, 0.1, 0.1]), "ddof 1: |a - b| / 2 for two runs"
    assert line["n_runs"] == [1, 2, 2, 2, 2]


def test_an_arm_without_files_is_named_and_a_figure_without_any_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent, match=r"results_dir=.* matches grpo-\*, pods-\*"):
        load(figure(), tmp_path)
    run_file(tmp_path, "grpo-Run1", [0.1, 0.2, 0.3, 0.4])
    assert [arm.label for arm in load(figure(), tmp_path)] == ["GRPO"]
    assert "no results of GRPO-PODS" in texts(figure(), tmp_path)


@pytest.mark.parametrize(
    ("content", "mean", "said"),
    [
        pytest.param([0.1, [], 0.3, 0.4], [0.1, None, 0.3, 0.4], "at steps 200", id="empty list"),
        pytest.param(
            [0.1, [float("nan")] * 2, 0.3, 0.4], [0.1, None, 0.3, 0.4], "at steps 200", id="NaN"
        ),
        pytest.param(
            [0.1, [0.2, float("nan")], 0.3, 0.4],
            [0.1, 0.2, 0.3, 0.4],
            "",
            id="one NaN repeat is dropped",
        ),
        pytest.param(
            [0.1, [None, "x"], 0.3, 0.4], [0.1, None, 0.3, 0.4], "at steps 200", id="no numbers"
        ),
        pytest.param([0.1, 0.2], [0.1, 0.2, None, None], "ends early", id="a shorter run"),
    ],
)
def test_holes_stay_where_they_are_and_are_named(
    tmp_path: Path, content: list[Any], mean: list[float | None], said: str
) -> None:
    run_file(tmp_path, "grpo-Run1", content)
    (arm,) = load(figure(), tmp_path)
    expected = [np.nan if value is None else value for value in mean]
    np.testing.assert_allclose(arm.quantities["value"][0], expected)
    errors = texts(figure(), tmp_path)
    assert ("grpo-Run1" in errors) == bool(said)
    assert said in errors
    line = curves.to_json([arm])["series"]["GRPO"]
    times = [0.5 * (i + 1) for i, value in enumerate(mean) if value is not None]
    assert line["time_hours"] == times, "a mark without any run is absent, not null"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("truncated", '{"checkpoint-100": {"gsm8k', id="truncated"),
        pytest.param("empty", "{}", id="no checkpoint"),
        pytest.param("other", json.dumps({"checkpoint-1": {"math500": entry(0.5)}}), id="dataset"),
    ],
)
def test_an_unusable_run_is_left_out_by_name(tmp_path: Path, name: str, content: str) -> None:
    run_file(tmp_path, "grpo-Run1", [0.1, 0.2, 0.3, 0.4])
    (tmp_path / f"grpo-{name}.json").write_text(content)
    (arm,) = load(figure(), tmp_path)
    assert arm.runs == ["grpo-Run1"]
    errors = texts(figure(), tmp_path)
    assert f"grpo-{name}" in errors
    assert "left out" in errors


def test_the_expected_count_is_that_of_most_runs_where_the_figure_names_none(
    tmp_path: Path,
) -> None:
    for i in (1, 2, 3):
        run_file(tmp_path, f"grpo-Run{i}", [0.1] * 6)
    run_file(tmp_path, "pods-Run1", [0.1, 0.2, 0.4, 0.5, 0.6], steps=[100, 200, 400, 500, 600])
    _, pods = load(figure(checkpoints=None), tmp_path)
    np.testing.assert_allclose(pods.quantities["value"][0], [0.1, 0.2, np.nan, 0.4])
    errors = texts(figure(checkpoints=None), tmp_path)
    assert "pods-Run1: a checkpoint is missing before step 400" in errors
    assert "grpo" not in errors, "six checkpoints are this figure's normal, two after the budget"


def test_measured_times_win_over_the_published_grid(
    tmp_path: Path,
) -> None:
    metas = [
        {"train_seconds": s, "tokens_generated": 10 * s, "tokens_trained": s}
        for s in (1803.0, 5420.0, 7210.0)
    ]
    run_file(tmp_path, "grpo-Run1", [0.1, 0.3, 0.4], metas=metas)
    (arm,) = load(figure(), tmp_path)
    assert arm.measured
    np.testing.assert_allclose(arm.quantities["value"][0], [0.1, np.nan, 0.3, 0.4])
    np.testing.assert_allclose(arm.quantities["seconds"][0], [1803, np.nan, 5420, 7210])
    np.testing.assert_allclose(arm.quantities["tokens_generated"][0, 0], 18030)
    assert "grpo-Run1: no checkpoint near 3600 s" in texts(figure(), tmp_path)


def test_an_arm_of_different_settings_is_named(
    tmp_path: Path,
) -> None:
    for name in ("grpo-n16-seed0", "grpo-n16-seed1", "grpo-n4-seed0"):
        run_file(tmp_path, name, [0.1, 0.2, 0.3, 0.4])
    load(figure(), tmp_path)
    assert "GRPO: averages runs of different settings: grpo-n4, grpo-n16" in texts(
        figure(), tmp_path
    )


def test_a_checkpoint_0_shifts_nothing(tmp_path: Path) -> None:
    run_file(tmp_path, "grpo-Run1", [0.0, 0.1, 0.2, 0.3, 0.4], steps=[0, 100, 200, 300, 400])
    (arm,) = load(figure(), tmp_path)
    np.testing.assert_allclose(arm.quantities["value"], [[0.1, 0.2, 0.3, 0.4]])
    assert "grpo-Run1: checkpoint-0 is dropped" in texts(figure(), tmp_path)


@pytest.mark.parametrize(
    ("metric", "share"), [("ans_acc", 1), ("for_acc", 0.5), ("both_acc", 0.25)]
)
def test_a_figure_shows_its_own_metric(tmp_path: Path, metric: str, share: float) -> None:
    run_file(tmp_path, "grpo-Run1", [0.1, 0.2, 0.3, 0.4])
    base_file(tmp_path, "base-toy", 0.08)
    (arm,) = load(figure(metric=metric), tmp_path)
    mean = curves.to_json([arm])["series"]["GRPO"]["mean"]
    assert mean == pytest.approx([share * value for value in (0.08, 0.1, 0.2, 0.3, 0.4)])


def test_a_metric_of_pass_at_k_and_an_unknown_one(tmp_path: Path) -> None:
    metas = [{"pass@k": {"gsm8k": {"3": {"mean": value}}}} for value in (0.5, 0.6, 0.7, 0.8)]
    run_file(tmp_path, "grpo-Run1", [0.1, 0.2, 0.3, 0.4], metas=metas)
    base_file(tmp_path, "base-toy", 0.1)
    facts = {"details": {"pass@k": {"gsm8k": {"3": {"mean": 0.4}}}}}
    (tmp_path / "base-toy.meta.json").write_text(json.dumps(facts))
    (arm,) = load(figure(metric="pass@3"), tmp_path)
    assert curves.to_json([arm])["series"]["GRPO"]["mean"] == [0.4, 0.5, 0.6, 0.7, 0.8]


def export_figure(**changes: Any) -> Any:
    return figure(
        base=[],
        grid_seconds=120.0,
        budget_seconds=480.0,
        wandb_export=WandbExport(accuracy="toy-acc.csv", length="toy-length.csv"),
        series={
            "GRPO": FigureSeries(runs=["*-n32-*"]),
            "GRPO-PODS": FigureSeries(runs=["*-n128-*"]),
        },
        **changes,
    )


def test_an_export_takes_the_nearest_sample_of_runs_in_both_files(
    tmp_path: Path,
) -> None:
    runs = {
        "GRPO-s2-p8-n32-m32-ga16": [(0.7, 0.0), (2.4, 0.2), (3.5, 0.35), (6.3, 0.6), (8.1, 0.8)],
        "GRPO-s10-p8-n32-m32-ga16": [(2.0, 0.4), (9.0, 0.6)],
        "GRPO-s3-p8-n32-m32-ga16": [(2.0, 1.0), (8.0, 1.0)],
        "GRPO-s2-p8-n128-m32-ga4": [(0.5, 0.5), (0.9, 0.7)],
    }
    export_files(tmp_path, "toy", runs, length_only="GRPO-s3-p8-n32-m32-ga16")
    grpo, pods = load(export_figure(), tmp_path)
    assert grpo.runs == ["GRPO-s2-p8-n32-m32-ga16", "GRPO-s10-p8-n32-m32-ga16"]
    np.testing.assert_allclose(
        grpo.quantities["value"], [[0.2, 0.35, 0.6, 0.8], [0.4, 0.4, 0.6, 0.6]]
    )
    np.testing.assert_allclose(pods.quantities["value"], [[0.7, 0.7, 0.7, np.nan]])
    assert grpo.quantities["steps"][0, 0] == 20, "_step counts micro-steps, 16 to a step"
    assert pods.quantities["steps"][0, 0] == 80
    errors = texts(export_figure(), tmp_path)
    assert "GRPO-s3-p8-n32-m32-ga16: only in toy-length.csv" in errors
    assert "GRPO-s2-p8-n128-m32-ga4: no checkpoint near 480 s" in errors, "the run had ended"
    assert "GRPO-s2-p8-n128-m32-ga4: the checkpoint used at 240, 360 s is over 120 s away" in errors


def test_an_export_with_damaged_rows_or_columns_is_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "toy-acc.csv"
    column = "data/GRPO-s1-n32-m32-ga4 - eval/accuracy"
    path.write_text(f'"eval/time","{column}"\n60,0.5\n,0.6\n120,NaN\n180,oops\n240,0.8\n')
    tables, notes = published.read_csv(path)
    samples = tables["GRPO-s1-n32-m32-ga4"]
    np.testing.assert_allclose(samples[:, [0, 2]], [[60, 0.5], [240, 0.8]])
    assert notes[0].text.startswith("toy-acc.csv: 3 rows")
    path.write_text("time,value\n1,2\n")
    with pytest.raises(UserError, match="eval/time"):
        published.read_csv(path)
    with pytest.raises(UserError, match="metric=both_acc: the export of figure=toy"):
        load(export_figure(metric="both_acc"), tmp_path)
    with pytest.raises(Absent, match=r" has no toy-length\.csv; set results_dir to the"):
        load(export_figure(), tmp_path)


UNLIKE = [
    pytest.param({"optimizer": {"learning_rate": 0.002}}, "optimizer.learning_rate", id="lr"),
    pytest.param({"budget": {"train_seconds": 60.0}}, "budget.train_seconds", id="budget"),
    pytest.param({"task": {"name": "math"}}, "task.name", id="task"),
    pytest.param({"model": {"name": "qwen", "path": "x"}}, "model.name", id="model"),
    pytest.param({"prompts_per_step": 1}, "prompts_per_step", id="prompts a step"),
    pytest.param({"questions": 32}, "questions", id="questions of the evaluation"),
]


@pytest.mark.parametrize(("change", "key"), UNLIKE)
def test_unlike_runs_are_refused(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    for i, changes in enumerate([{}, {}, change]):
        run_file(tmp_path, f"grpo-{i}", [0.1, 0.2, 0.3, 0.4 + 0.1 * i])
        facts_file(tmp_path, f"grpo-{i}", **{"seed": 2 - i} | changes)
    with pytest.raises(Unlike, match=f"runs of GRPO differ in {key}: .* in grpo-0, grpo-1"):
        load(figure(), tmp_path)


def test_unlike_repeats_are_refused_where_the_runs_are_ours(
    tmp_path: Path,
) -> None:
    run_file(tmp_path, "grpo-0", [[0.1] * 5, 0.2, 0.3, 0.4])
    run_file(tmp_path, "grpo-1", [0.1, 0.2, 0.3, 0.4])
    line = "runs of GRPO differ in repeats: 5 in grpo-0; 2 in grpo-1; averaged"
    assert line in texts(figure(), tmp_path)
    for i in (0, 1):
        facts_file(tmp_path, f"grpo-{i}", model={"name": "tiny", "path": f"/home/{i}/policy"})
    with pytest.raises(Unlike, match="differ in repeats"):
        load(figure(), tmp_path)


def test_the_seconds_of_two_clocks_are_never_compared(tmp_path: Path) -> None:
    for name in ("grpo-0", "pods-0"):
        run_file(tmp_path, name, [0.1, 0.2, 0.3, 0.4])
        facts_file(tmp_path, name, clock={"name": "l40s"})
    assert [arm.clock for arm in load(figure(), tmp_path)] == ["l40s", "l40s"]
    facts_file(tmp_path, "pods-0", clock={"name": "measured"})
    with pytest.raises(Unlike, match="seconds of two clocks cannot be compared: l40s of GRPO"):
        load(figure(), tmp_path)
