"""scripts/import_published.py: irregular files of the authors never shift a curve."""

import numpy as np
import pytest

from pods.figures import curves
from pods.runs import results
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
# A real run: the steps of an aborted attempt stand between those of the second one.
RUN9 = [171, 204, 351, 485, 772, 1031, 1348, 1622, 1867, 2138, 2394, 2630, 2859, 3078]
LLAMA4 = [96, 199, 300, 398, 603, 705, 805, 900, 1004, 1102, 1200]  # lacks its fifth checkpoint


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The authors' folder, and that of the results; relative, as they are typed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    return tmp_path / "theirs", tmp_path / "results" / "published"


def test_a_runs_checkpoints_get_the_times_of_the_published_grid(folders, capsys):
    theirs, ours = folders
    published_run(theirs, "Instruct-GSM8K-512-64-2-Run9", [1e-4 * i for i in RUN9], steps=RUN9)
    name = "Instruct-Llama-512-64-16-0.04-Run4"
    published_run(theirs, name, [0.1] * 11, steps=LLAMA4)
    base_file(theirs, "base-qwen", 0.1)
    out, err = printed(capsys, IMPORT, "folder=theirs")
    assert ["step 171" in err, "step 351" in err, "before step 603" in err] == [True] * 3
    assert out.endswith("uv run scripts/plot.py figure=all results_dir=results/published\n")
    run9 = results.read(ours / "Instruct-GSM8K-512-64-2-Run9.json")
    seconds = {step: scores.meta["train_seconds"] for step, scores in run9.items()}
    own = [step for step in RUN9 if step not in (171, 351)]
    assert seconds == {step: 1800.0 * point for point, step in enumerate(own, 1)}
    llama = results.read(ours / f"{name}.json").values()
    points = [scores.meta["train_seconds"] / 600 for scores in llama]
    assert points == [1, 2, 3, 4, *range(6, 13)], "the lost one leaves a gap"
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


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("h100s-acc.csv", "time,value\n1,2\n", "is no export of wandb"),
        ("h100s-acc.csv", "", "is no export of wandb"),
        ("Instruct-GSM8K-512-16-16-Run2.json", '{"checkpoint-100": {"gsm', "Run2.json"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_written(name, content, words, folders, capsys):
    theirs, ours = folders
    published_run(theirs, "Instruct-GSM8K-512-16-16-Run1", [0.5] * 12)
    export_files(theirs, "h100s", {"grpo-s1-ga4": [(2.0, 0.5)]})
    (theirs / name).write_text(content)
    line = refused(capsys, IMPORT, "folder=theirs")
    assert (name in line, words in line) == (True, True)
    assert not ours.exists()


def test_an_export_of_one_file_is_named(folders, capsys):
    export_files(folders[0], "h100s", {"grpo-s1-ga4": [(2.0, 0.5)]})
    (folders[0] / "h100s-length.csv").unlink()
    line = refused(capsys, IMPORT, "folder=theirs")
    assert line.startswith("import_published.py: theirs/h100s-length.csv: is no export of wandb")


def test_a_run_of_an_export_without_its_micro_steps_is_named(folders, capsys):
    export_files(folders[0], "toy", {"grpo-s1": [(2.0, 0.5)]})
    line = refused(capsys, IMPORT, "folder=theirs")
    assert "toy-acc.csv: data/grpo-s1: must end with -ga<micro-steps of a step>" in line


@pytest.mark.parametrize("checkpoints", [11, 13])
def test_a_run_of_another_number_of_checkpoints_has_no_times(checkpoints, folders, capsys):
    published_run(folders[0], "Instruct-GSM8K-512-16-16-Run1", [0.5] * checkpoints)
    assert f"has {checkpoints} of 12 checkpoints" in refused(capsys, IMPORT, "folder=theirs")


def test_what_cannot_be_imported_is_one_line_and_changes_nothing(folders, capsys):
    theirs, ours = folders
    assert "has none of the authors' files" in refused(capsys, IMPORT, "folder=theirs")
    assert "has none of the authors' files" in refused(capsys, IMPORT, "folder=none")
    published_run(theirs, "Instruct-GSM8K-512-16-16-Run1", [0.5] * 12)
    before = {path: path.read_bytes() for path in theirs.iterdir()}
    same = refused(capsys, IMPORT, "folder=theirs", "results_dir=./theirs")
    assert same.startswith("import_published.py: results_dir=theirs: Instruct-GSM8K-512-16-16-Run1")
    assert {path: path.read_bytes() for path in theirs.iterdir()} == before
    ours.mkdir(parents=True)
    run_file(ours, "Instruct-GSM8K-512-16-16-Run1", RISING)
    assert "Run1.json" in refused(capsys, IMPORT, "folder=theirs")


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
