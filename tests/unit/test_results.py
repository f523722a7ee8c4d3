"""pods/runs/results.py: the published schema both ways, and files that are not as expected."""

import json
import math

import pytest

from pods.config.errors import UserError
from pods.runs import results
from pods.runs.results import Entry, Scores


def test_what_is_written_reads_back_and_has_only_checkpoints_at_its_top(tmp_path):
    path = tmp_path / "run.json"
    entry = Entry(
        ans_acc=[0.5, 0.25],
        for_acc=[1.0, 0.5],
        both_acc=[0.5, 0.0],
        lengths=[31.5, 30.0],
        examples=[{"prompt": "<b>é\ud800"}],
    )
    run = {1000: Scores(gsm8k=entry)}
    run[90] = Scores(gsm8k=Entry(), math500=entry, meta={"train_seconds": 1.5})
    results.write(path, run)
    assert results.read(path) == run
    content = json.loads(path.read_text())
    assert list(content) == ["checkpoint-90", "checkpoint-1000"], "the published reader's steps"
    names = ("ans_acc", "for_acc", "both_acc", "lengths", "examples")
    assert content["checkpoint-1000"]["gsm8k"] == {name: getattr(entry, name) for name in names}
    with pytest.raises(ValueError, match="JSON compliant"):
        results.write(path, {1: Scores(gsm8k=Entry(ans_acc=[math.nan]))})
    assert results.read(path) == run, "the file is not replaced by one that is no JSON"
    path.write_text(json.dumps({f"checkpoint-{step}": {} for step in (100, 9, 10)}))
    assert list(results.read(path)) == [9, 10, 100]


def test_the_base_has_no_checkpoint_level_and_no_meta(tmp_path):
    path = tmp_path / "base-tiny.json"
    results.write(path, Scores(gsm8k=Entry(ans_acc=[0.5]), meta={"train_seconds": 1}))
    assert list(json.loads(path.read_text())) == ["gsm8k"]
    assert results.read_base(path) == Scores(gsm8k=Entry(ans_acc=[0.5]))


@pytest.mark.parametrize(
    ("read", "content", "problem"),
    [
        (results.read, '{"checkpoint-1": {"gsm8k": {"ans_', "not readable as JSON"),
        pytest.param(results.read, "[" * 100_000, "not readable as JSON", id="too deep"),
        (results.read, "[1]", "content: Input should be a valid dictionary"),
        (results.read, '{"gsm8k": {}}', "gsm8k.*checkpoint-"),  # a base file
        (results.read, '{"checkpoint-1": {"a": {"ans_acc": 1}}}', "a.ans_acc: Input .* list"),
        (results.read, None, "no such file"),
        (results.read_base, '{"checkpoint-1": {}}', "checkpoint-<step>"),
    ],
)
def test_an_unreadable_file_is_one_line_that_names_it(tmp_path, read, content, problem):
    path = tmp_path / "run.json"
    if content:
        path.write_text(content)
    with pytest.raises(UserError, match=problem) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_run10_follows_run9_and_facts_are_no_run(tmp_path):
    for name in ("a-Run10", "a-Run2", "a-Run9", "a-0.04-Run1", "b-Run1", "a-Run2.meta"):
        (tmp_path / f"{name}.json").touch()
    found = [path.stem for path in results.find(tmp_path, ["a-Run*", "a-*"])]
    assert found == ["a-0.04-Run1", "a-Run2", "a-Run9", "a-Run10"]


def test_a_folder_that_is_none_of_a_sweep_is_refused(tmp_path):
    for pattern in (str(tmp_path / "sweep-typo"), "checkpoints/sweep-typo"):
        with pytest.raises(UserError, match="sweep-typo: is no folder of a sweep"):
            results.find(tmp_path, [pattern])


@pytest.mark.parametrize(
    ("read", "pattern"),
    [(results.read, "Instruct-*"), (results.read_base, "base-qwen")],
    ids=["runs", "base"],
)
def test_the_published_files_survive_a_round_trip(read, pattern, shared, tmp_path):
    paths = results.find(shared / "reference" / "results", [pattern])
    for path in paths:
        results.write(tmp_path / path.name, read(path))
    copies = {path.name: json.loads((tmp_path / path.name).read_text()) for path in paths}
    assert copies == {path.name: json.loads(path.read_text()) for path in paths}
