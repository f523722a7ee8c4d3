"""scripts/import_published.py: irregular files of the authors never shift a curve."""

import numpy as np
import pytest

from pods.config.errors import UserError
from pods.figures import curves
from pods.runs import results
from scripts import import_published
from tests.figures import (
    base_file,
    export_files,
    figure,
    printed,
    published_files,
    published_run,
    refused,
    run_file,
)

NAN, RISING = float("nan"), [0.1, 0.2, 0.3, 0.4]
IMPORT, PLOT = "scripts/import_published.py", "scripts/plot.py"
HEALTHY = [210, 418, 627, 851, 1068, 1271, 1494, 1720, 1957, 2180, 2423, 2649]
# A real run: the steps of an aborted attempt stand between those of the second one.
RUN9 = [171, 204, 351, 485, 772, 1031, 1348, 1622, 1867, 2138, 2394, 2630, 2859, 3078]
INTERLEAVED = [None, 1, None, *range(2, 13)]
TWO_ATTEMPTS = sorted([*range(100, 900, 100), *range(120, 920, 100)])


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The authors' folder, and that of the results; relative, as they are typed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    return tmp_path / "theirs", tmp_path / "results" / "published"


@pytest.mark.parametrize(
    ("steps", "points", "note"),
    [
        ([], [], ""),
        (HEALTHY, [*range(1, 13)], ""),
        ([50, 300, *HEALTHY[2:]], [*range(1, 13)], ""),  # uneven, but the expected count
        (RUN9, INTERLEAVED, "171, 351"),
        ([*HEALTHY, 2660], [*range(1, 13), None], "2660"),  # a last save too close
        (HEALTHY[:4] + HEALTHY[5:], [1, 2, 3, 4, *range(6, 13)], "before step 1271"),
        (HEALTHY[:4] + HEALTHY[5:10], [1, 2, 3, 4, *range(6, 11)], "ends early"),  # and killed
        ([*HEALTHY, 2880], [*range(1, 14)], "the first 12 count"),  # went on after the budget
        (TWO_ATTEMPTS, [None] * 16, "left out"),
    ],
)
def test_points_of_published_checkpoints(steps, points, note, capsys):
    by_index = import_published.by_index("run", steps, 12)
    np.testing.assert_array_equal(by_index, np.array(points, dtype=float))
    notes = capsys.readouterr().err
    assert note in notes
    assert bool(notes) == bool(note), "a regular run has no note"


def test_a_runs_checkpoints_get_the_times_of_the_published_grid(folders, capsys):
    theirs, ours = folders
    published_run(theirs, "Instruct-GSM8K-512-64-2-Run9", [1e-4 * i for i in RUN9], steps=RUN9)
    published_run(theirs, "Instruct-Llama-512-16-16-0.04-Run1", RISING)
    base_file(theirs, "base-qwen", 0.1)
    out, err = printed(capsys, IMPORT, "folder=theirs")
    assert "steps 171, 351" in err
    assert out.endswith("uv run scripts/plot.py figure=all results_dir=results/published\n")
    run9 = results.read(ours / "Instruct-GSM8K-512-64-2-Run9.json")
    seconds = {step: scores.meta["train_seconds"] for step, scores in run9.items()}
    own = [step for step in RUN9 if step not in (171, 351)]
    assert seconds == {step: 1800.0 * point for point, step in enumerate(own, 1)}
    llama = results.read(ours / "Instruct-Llama-512-16-16-0.04-Run1.json")
    assert [scores.meta["train_seconds"] for scores in llama.values()] == [600, 1200, 1800, 2400]
    assert results.read_base(ours / "base-qwen.json").datasets["gsm8k"].ans_acc == [0.1, 0.1]
    before = {path: path.read_bytes() for path in ours.iterdir()}
    printed(capsys, IMPORT, "folder=theirs")
    assert {path: path.read_bytes() for path in ours.iterdir()} == before


def test_an_export_takes_the_nearest_sample_of_runs_in_both_files(folders, capsys):
    theirs, ours = folders
    runs = {
        "grpo-s2-ga16": [(0.7, 0.0), (2.4, 0.2), (3.5, 0.35), (6.3, 0.6), (8.1, 0.8)],
        "grpo-s10-ga16": [(2.0, 0.4), (9.0, 0.6)],
        "grpo-s3-ga16": [(2.0, 1.0), (8.0, 1.0)],
        "pods-s2-ga4": [(0.5, 0.5), (0.9, 0.7)],
    }
    export_files(theirs, "toy", runs, length_only="grpo-s3-ga16")
    notes = printed(capsys, IMPORT, "folder=theirs").err
    assert "grpo-s3-ga16: only in one file of the export; left out" in notes
    toy = figure(grid_seconds=120.0, budget_seconds=480.0, base=[])
    grpo, pods = curves.read(toy, ours, [])
    assert grpo.runs == ["grpo-s2-ga16", "grpo-s10-ga16"]
    values = [[0.2, 0.35, 0.6, 0.8], [0.4, 0.4, 0.6, 0.6]]
    for quantity in ("value", "length"):
        np.testing.assert_allclose(grpo.quantities[quantity], values)
        np.testing.assert_allclose(grpo.start(quantity), [0.0, 0.4], err_msg="the first sample")
    np.testing.assert_allclose(pods.quantities["value"], [[0.7, 0.7, 0.7, NAN]])
    steps = [method.quantities["steps"][0, 0] for method in (grpo, pods)]
    assert steps == [20, 80], "_step counts micro-steps, 16 or 4 to a step"


def test_damaged_rows_of_an_export_are_left_out(tmp_path):
    path = tmp_path / "toy-acc.csv"
    run = "data/grpo-s1-ga4 - "
    rows = "60,4,0.5\n,4,0.6\n120,4,NaN\n180,4,oops\n200,,0.7\n240,8,0.8\n"
    path.write_text(f'"eval/time","{run}_step","{run}eval/accuracy"\n{rows}')
    samples = import_published.read_csv(path)["grpo-s1-ga4"]
    np.testing.assert_allclose(samples, [[60, 1, 0.5], [240, 2, 0.8]])


@pytest.mark.parametrize(
    ("content", "words"),
    [("time,value\n1,2\n", "no column eval/time"), ("", "not a CSV file")],
)
def test_an_export_without_columns_is_named(tmp_path, content, words):
    path = tmp_path / "toy-acc.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=words):
        import_published.read_csv(path)


def test_what_cannot_be_imported_is_one_line_and_changes_nothing(folders, capsys):
    theirs, ours = folders
    assert "has none of the authors' files" in refused(capsys, IMPORT, "folder=theirs")
    assert "folder=none: no such folder" in refused(capsys, IMPORT, "folder=none")
    published_run(theirs, "Instruct-GSM8K-512-16-16-Run1", [0.5] * 12)
    same = refused(capsys, IMPORT, "folder=theirs", "results_dir=./theirs")
    assert same.startswith("import_published.py: results_dir=theirs: is the authors'")
    ours.mkdir(parents=True)
    run_file(ours, "Instruct-GSM8K-512-16-16-Run1", RISING)
    assert "Run1.json" in refused(capsys, IMPORT, "folder=theirs")


def test_an_unusable_file_is_left_out_by_name_and_the_others_are_imported(folders, capsys):
    theirs, ours = folders
    for name in ("Instruct-GSM8K-512-16-16-Run1", "Instruct-GSM8K-512-16-16-Run2", "mine"):
        published_run(theirs, name, [0.5] * 12)
    (theirs / "Instruct-GSM8K-512-16-16-Run2.json").write_text('{"checkpoint-100": {"gsm')
    (theirs / "h100s-acc.csv").write_text("time\n1\n")
    err = printed(capsys, IMPORT, "folder=theirs", code=3).err
    names = "Instruct-GSM8K-512-16-16-Run2.json, mine.json, h100s-acc.csv"
    assert f"left out, for the reasons above: {names}" in err
    assert [path.stem for path in ours.glob("*Run?.json")] == ["Instruct-GSM8K-512-16-16-Run1"]


@pytest.mark.parametrize("name", ["gsm8k_main", "a100s", "all"])
def test_a_figure_of_the_authors_own_files_is_answered_with_the_import(name, folders, capsys):
    published_files(folders[0])
    line = refused(capsys, PLOT, f"figure={name}", "results_dir=theirs")
    assert line.startswith("plot.py: results_dir=theirs: ")
    assert "uv run scripts/import_published.py folder=theirs" in line


def test_a_file_without_times_beside_others_is_left_out(folders, capsys):
    theirs, _ = folders
    published_run(theirs, "Instruct-GSM8K-512-16-16-Run1", [0.5] * 12)
    run_file(theirs, "gsm8k_qwen-grpo-n16-m16-seed0", [0.5] * 12)
    keys = ("scripts/speedup.py", "figure=gsm8k_main", "results_dir=theirs")
    assert (
        "Instruct-GSM8K-512-16-16-Run1: has no train_seconds" in printed(capsys, *keys, code=2).err
    )
