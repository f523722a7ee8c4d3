"""task=own: a data set of the user's from a file, a folder or the hub, and every mistake in it."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from pods import tasks
from pods.config.errors import UserError
from pods.config.keys import Task
from pods.tasks.own import define
from tests.configs import compose

COLUMNS = {"question": "problem", "answer": "solution", "gold": "as_is", "kind": "math"}
GOLD_FILE = """
def doubled(row):
    return str(2 * row["half"])
def wrong_type(row):
    return row["half"]
def raises(row):
    return row["absent"]
"""


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"problem": f"What is {i}+1?", "solution": i + 1, "half": (i + 1) / 2, "tags": ["sum", i]}
        for i in range(start, start + count)
    ]


def write(path: Path, lines: list[Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def own(source: str, split: str = "train", **keys: Any) -> datasets.Dataset:
    return tasks.load("own", split, source=source, **{**COLUMNS, **keys})


@pytest.mark.parametrize(
    ("count", "train", "validation", "test"),
    [
        (3, 3, 0, 0),  # nothing can be spared
        (5, 4, 0, 1),
        (100, 64, 16, 20),
        (2000, 1488, 256, 256),  # the limits: validation_size and 256
    ],
)
def test_a_file_is_divided(
    count: int,
    train: int,
    validation: int,
    test: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = write(tmp_path / "q.jsonl", rows(count))
    sizes = {"train": train, "validation": validation, "test": test}
    parts = {split: own(source, split) for split, size in sizes.items() if size}
    assert {split: len(part) for split, part in parts.items()} == {
        k: v for k, v in sizes.items() if v
    }
    held = [question for part in parts.values() for question in part["question"]]
    assert sorted(held) == sorted(row["problem"] for row in rows(count))  # each row in one split
    assert parts["train"]["question"][:] == own(source)["question"][:]  # the same in every run
    said = capsys.readouterr().err
    assert f"{count} questions of {source}: {train} train, {validation} validation, {test} " in said


def test_a_task_of_the_users_is_named_own_and_has_the_splits_of_its_source(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(3))
    found = define(Task.model_construct(name="own", source=str(tmp_path), **COLUMNS), "train")
    assert (found.name, found.hub, dict(found.splits)) == ("own", str(tmp_path), {"train": ""})


def test_a_file_too_small_for_a_test_split(tmp_path: Path) -> None:
    source = write(tmp_path / "q.jsonl", rows(3))
    with pytest.raises(UserError, match=r"has no test questions .* one file of at least 5 rows"):
        own(source, "test")
    with pytest.raises(UserError, match="leaves no validation questions"):
        own(source, "validation")


def test_a_row_keeps_its_other_columns(tmp_path: Path) -> None:
    source = write(tmp_path / "q.jsonl", rows(1, start=41))
    assert own(source)[0] == {
        "id": "1",
        "question": "What is 41+1?",
        "answer": "42",
        "kind": "math",
        "problem": "What is 41+1?",
        "solution": 42,
        "half": 21.0,
        "tags": ["sum", 41],
    }


def test_a_folder_with_and_without_validation(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(20))
    with pytest.raises(UserError, match=r"no test questions \(found: train\); give test\.jsonl"):
        own(str(tmp_path), "test")
    write(tmp_path / "test.jsonl", rows(3, start=100))
    assert [len(own(str(tmp_path), split)) for split in tasks.SPLITS] == [16, 4, 3]
    write(tmp_path / "validation.jsonl", rows(2, start=200))
    assert [len(own(str(tmp_path), split)) for split in tasks.SPLITS] == [20, 2, 3]


def test_a_folder_without_train(tmp_path: Path) -> None:
    write(tmp_path / "test.jsonl", rows(3))
    assert len(own(str(tmp_path), "test")) == 3
    for split in ("train", "validation"):
        with pytest.raises(UserError, match=r"has no train questions \(found: test\)"):
            own(str(tmp_path), split)


def test_a_hub_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    parts = {"train": rows(20), "test": rows(4, start=50)}

    def answer(hub: str, subset: str | None) -> dict[str, datasets.Dataset]:
        asked.append((hub, subset))
        return {
            split: datasets.Dataset.from_list(part, on_mixed_types="use_json")
            for split, part in parts.items()
        }

    monkeypatch.setattr(datasets, "load_dataset", answer)
    assert [len(own("me/sums", split)) for split in tasks.SPLITS] == [16, 4, 4]
    del parts["test"]  # one split only: divided like a file
    assert [len(own("me/sums:easy", split)) for split in tasks.SPLITS] == [13, 3, 4]
    assert {*asked} == {("me/sums", None), ("me/sums", "easy")}


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("no such data set")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    message = r"^task\.source=me/sums: cannot get me/sums \(no such data set\); give a JSONL file"
    with pytest.raises(UserError, match=message):
        own("me/sums")


@pytest.mark.parametrize(
    ("gold", "solution", "expected"),
    [
        ("as_is", " 1/2 ", "1/2"),
        ("as_is", 0.5, "0.5"),
        ("after_hashes", "Half.\n#### 1,000", "1000"),
        ("boxed", "So \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("gold.py:doubled", "unused", "9.0"),
    ],
)
def test_gold(
    gold: str,
    solution: Any,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gold.py").write_text(GOLD_FILE)
    source = write(Path("q.jsonl"), [{"problem": "?", "solution": solution, "half": 4.5}])
    assert own(source, gold=gold)["answer"][:] == [expected]


def test_a_choice_task(tmp_path: Path) -> None:
    source = write(tmp_path / "q.jsonl", [{"problem": "Which?\nA. x\nB. y", "solution": "B"}])
    assert own(source, kind="choice")[0]["kind"] == "choice"


GOOD = {"problem": "1+1?", "solution": "2", "half": 1}
BAD_ROWS = [
    # the second row, task.gold, what the error says after file:line
    ({"problem": "1+1?"}, "as_is", "column 'solution' is missing; found problem; correct the row"),
    ({"solution": "2"}, "as_is", "column 'problem' is missing; found solution"),
    ({}, "as_is", "column 'problem' is missing; found none; correct the row"),
    ({**GOOD, "problem": 5}, "as_is", "column 'problem' must be text, is 5"),
    ({**GOOD, "problem": " "}, "as_is", "the question is empty"),
    ({**GOOD, "solution": ["2"]}, "as_is", "column 'solution' must be text or a number, is ['2']"),
    ({**GOOD, "solution": " "}, "as_is", "the gold answer is empty"),
    ({**GOOD, "solution": 2}, "boxed", "column 'solution' must be text, is 2"),
    (GOOD, "boxed", "column 'solution' has no \\boxed{...}"),
    (GOOD, "after_hashes", "column 'solution' has no \"####\""),
    (GOOD, "gold.py:wrong_type", "task.gold=gold.py:wrong_type must return text, returned 1"),
    (GOOD, "gold.py:raises", "task.gold=gold.py:raises raised KeyError: 'absent'"),
    ([1], "as_is", "not a JSON object"),
]


@pytest.mark.parametrize(("row", "gold", "message"), BAD_ROWS)
def test_a_bad_row_is_one_line_with_its_place(
    row: Any, gold: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gold.py").write_text(GOLD_FILE)
    first = {"as_is": "2", "boxed": "\\boxed{2}", "after_hashes": "#### 2"}.get(gold, "2")
    bad = row if "gold.py" in gold else [{**GOOD, "solution": first}, row]
    source = write(Path("q.jsonl"), bad if isinstance(bad, list) else [bad])
    with pytest.raises(UserError) as error:
        own(source, gold=gold)
    assert str(error.value).startswith(f"q.jsonl:{1 if 'gold.py' in gold else 2}: {message}")
    assert str(error.value).endswith("; correct the row, task.question, task.answer or task.gold")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"source": None}, "task.source=None: task=own needs it; set a JSONL file, folder or hub"),
        ({"question": None}, "task.question=None: task=own needs it; set one of its columns"),
        ({"answer": ""}, "task.answer=: task=own needs it"),
        ({"kind": "essay"}, "task.kind=essay: must be one of math, choice"),
        (
            {"gold": "last"},
            "task.gold=last: must be one of as_is, after_hashes, boxed, or path/to/",
        ),
        ({"gold": "absent.py:f"}, "task.gold=absent.py:f: no file absent.py"),
        ({"source": "absent.jsonl"}, "task.source=absent.jsonl: no such file or folder"),
        ({"source": "./absent"}, "task.source=./absent: no such file or folder"),
    ],
)
def test_mistakes_in_the_keys(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    source = write(tmp_path / "q.jsonl", rows(3))
    with pytest.raises(UserError) as error:
        own(**{"source": source, **keys})
    assert str(error.value).startswith(message)


def test_the_config_group_composes_and_another_task_drops_its_keys() -> None:
    config = compose(
        "task=own",
        "task.source=q.jsonl",
        "task.question=problem",
        "task.answer=solution",
        "task.system=Add.",
    )
    assert (config.task.gold, config.task.kind) == ("as_is", "math")
    assert list(tasks.problems(config.task)) == []
    other = tasks.renamed(config.task, "gsm8k")
    assert (other.name, other.system, other.source, other.kind) == ("gsm8k", "Add.", None, None)
    assert list(tasks.problems(other)) == []
    assert tasks.renamed(config.task, "own") == config.task
    first = next(tasks.problems(Task.model_construct(name="own", gold="as_is", kind="math")))
    assert first.startswith("task.source=None")
