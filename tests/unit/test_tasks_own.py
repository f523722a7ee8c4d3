"""task=own: a data set of the user's from a file, a folder or the hub, and every mistake in it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest

from pods import tasks
from pods.config.errors import UserError
from tests.configs import compose, load_rows

COLUMNS = {"question": "problem", "answer": "solution", "gold": "as_is", "kind": "math"}
GOLD_FILE = """
def doubled(row): return str(2 * row["half"])
def positive(row): return str(row["half"]) if row["half"] > 1 else None
def number(row): return row["half"]
def raises(row): return row["absent"]
"""


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    numbers = range(start, start + count)
    return [{"problem": f"What is {i}+1?", "solution": i + 1, "tags": ["sum", i]} for i in numbers]


def write(path: Path, lines: list[Any]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def own(source: str, split: str = "train", **keys: Any) -> datasets.Dataset:
    return load_rows("own", split, source=source, **{**COLUMNS, **keys})


def sizes(source: str) -> list[int]:
    return [len(own(source, split)) for split in tasks.SPLITS]


@pytest.mark.parametrize(
    "expected",
    [
        {"train": 3},
        {"train": 4, "test": 1},
        {"train": 64, "validation": 16, "test": 20},
        {"train": 1488, "validation": 256, "test": 256},
    ],
    ids=["3", "5", "100", "2000, at the limits: validation_size and 256"],
)
def test_a_file_is_divided(expected, tmp_path, capsys):
    count, test = sum(expected.values()), expected.get("test", 0)
    source = write(tmp_path / "q.jsonl", rows(count))
    parts = {split: own(source, split)["question"][:] for split in expected}
    assert {split: len(part) for split, part in parts.items()} == expected
    assert {q for part in parts.values() for q in part} == {row["problem"] for row in rows(count)}
    assert parts["train"] == own(source)["question"][:]  # the same in every run
    assert f"task=own: {test} of the {count} questions of {source}" in capsys.readouterr().err
    if count < 5:
        with pytest.raises(UserError, match=r"has no test split .* one file of at least 5 row"):
            own(source, "test")
        with pytest.raises(UserError, match="leaves no validation questions"):
            own(source, "validation")


def test_a_file_may_get_further_rows_in_any_order(tmp_path):
    before, after = rows(1536), rows(2000)[::-1]  # from 1,536 on both limits hold
    source = write(tmp_path / "q.jsonl", before)
    trained = {*own(source)["question"]}
    assert len(trained) == 1536 - 2 * 256
    write(tmp_path / "q.jsonl", after)
    for split in ("validation", "test"):
        assert trained.isdisjoint(own(source, split)["question"])


def test_equal_questions_fall_into_one_split(tmp_path):
    source = write(tmp_path / "q.jsonl", [*rows(20), *rows(20)])  # 8 for test, 6 for validation
    parts = {split: {*own(source, split)["question"]} for split in ("train", "validation", "test")}
    assert [len(part) for part in parts.values()] == [13, 3, 4]


def test_a_folder(tmp_path):
    with pytest.raises(UserError, match=r"^task.source=./absent: no such file or folder"):
        own("./absent")
    write(tmp_path / "test.jsonl", rows(3, start=100))
    assert len(own(str(tmp_path), "test")) == 3
    with pytest.raises(UserError, match=r"no validation split \(its splits: test\); give train"):
        own(str(tmp_path), "validation")
    write(tmp_path / "train.jsonl", rows(20))
    assert sizes(str(tmp_path)) == [16, 4, 3]
    write(tmp_path / "validation.jsonl", rows(2, start=200))
    assert sizes(str(tmp_path)) == [20, 2, 3]
    (tmp_path / "test.csv").write_text("problem,solution\n1+1?,2\n")
    with pytest.raises(UserError, match=r"test\.csv, test\.jsonl are not one file of test"):
        own(str(tmp_path), "test")
    (tmp_path / "test.csv").unlink()
    (tmp_path / "train.jsonl").unlink()  # of a run that is only scored
    assert len(own(str(tmp_path), "validation")) == 2


def test_cells_of_a_csv_file_stay_as_they_are_written(tmp_path):
    answers = ["0007", "NA", "9007199254740993", "0.5", "12345678901234567890123", "27.0", "1e3"]
    lines = [f"q{i},{answer},{i}" for i, answer in enumerate(answers)]
    path = tmp_path / "test.csv"
    path.write_text("\n".join(["problem,solution,count", *lines]) + "\n")
    part = own(str(tmp_path), "test")
    assert part["answer"][:] == [*answers[:5], "27", "1e3"]
    assert part["count"][:] == [*"0123456"]


BROKEN = {
    "q.csv": (b"problem,solution\nA sum, of 1 and 1?,2\nOf 2, and 1?,3\n", "line 2 has more or"),
    "a.csv": (b"problem,solution\n1+1?,2\n1,2?,3\n", "line 3 has more or fewer cells"),
    "b.csv": (b"problem,solution\n1+1?,2\n2+2?\n", "line 3 has more or fewer cells"),
    "d.csv": (b'problem,solution\n"1+1?,2\n', "unexpected end of data"),
    "c.tsv": (
        b"problem\tsolution\n" + b"1+1?\t2\n" * 9999 + b"1+1?\t\xe9\n",
        "'utf-8' codec can't decode byte 0xe9.*in UTF-8",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_is_refused_with_the_reason(name, tmp_path):
    content, reason = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"^task\.source={path}: .*\({reason}"):
        own(str(path))


def test_a_file_is_read_anew(tmp_path):
    """Not from the cache of the hub's library, which knows a file by its name and time."""
    for question in ("1+1?", "2+2?"):
        path = tmp_path / "q.json"
        path.write_text(json.dumps([{"problem": question, "solution": "2024-05-01"}]))
        os.utime(path, (0, 0))
        assert own(str(path))["question"][:] == [question]
        assert own(str(path))["answer"][:] == ["2024-05-01"]  # a text, no date


def test_columns_that_rewards_get_otherwise_are_left_out(tmp_path):
    taken = dict.fromkeys(("prompt", "prompts", "completions", "trainer_state"), "x")
    write(tmp_path / "test.jsonl", [{**row, **taken, "kept": 1} for row in rows(5)])
    assert {*own(str(tmp_path), "test").column_names} & {*taken, "kept"} == {"kept"}


FORMATS = {
    "q.csv": lambda path, table: table.to_csv(path, index=False),
    "q.tsv": lambda path, table: table.to_csv(path, index=False, sep="\t"),
    "q.parquet": lambda path, table: table.to_parquet(path),
    "q.json": lambda path, table: table.to_json(path, orient="records"),
    "q.jsonl": lambda path, table: table.to_json(path, orient="records", lines=True),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_of_any_format_is_read(name, tmp_path):
    table = pandas.DataFrame(rows(20)).assign(tags="a,\nb", solution=lambda t: t.solution / 1)
    FORMATS[name](tmp_path / name, table)
    part = own(str(tmp_path / name))
    assert part["question"][0] == rows(20)[int(part["id"][0]) - 1]["problem"]
    assert sorted(map(int, part["answer"])) == sorted(set(map(int, part["answer"])))
    assert part["tags"][0] == "a,\nb"
    FORMATS[name](tmp_path / f"train{Path(name).suffix}", table)
    FORMATS["q.csv"](tmp_path / "test.csv", table[:4])
    assert sizes(str(tmp_path)) == [16, 4, 4]


WRONG = {
    "q.xlsx": (b"PK", "task.source={}: cannot be read (unknown ending); give a .jsonl, .json, .cs"),
    "a.jsonl": (b"problem,solution\n1+1?,2\n", "{}:1: not a JSON object (Expecting value"),
    "b.jsonl": (b"", "own/train: no rows in its file"),
    "d.jsonl": (b"\xff\xfe", "{}:1: not a JSON object (Expecting value"),
    "a.json": (b"{}", "own/train: no rows in its file"),
    "c.json": (b"1", "task.source={}: cannot be read ("),
    "a.csv": (b"", "own/train: no rows in its file"),
    "b.csv": (b"\x89PNG\r\n", "task.source={}: cannot be read ('utf-8' codec"),
    "c.csv": (b"problem,solution\n", "own/train: no rows in its file"),
    "a.parquet": (b"PAR1", "task.source={}: cannot be read (Parquet file size is 4 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_of_another_form_is_refused_with_what_can_be_read(name, tmp_path, monkeypatch):
    content, line = WRONG[name]
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    with pytest.raises(UserError) as error:
        own(name)
    assert str(error.value).startswith(line.format(name))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["question", "answer"])
def test_a_column_that_is_not_there_is_named_with_those_that_are(key, tmp_path):
    """Also if the head is missing, so that a row is read as one."""
    path = tmp_path / "q.csv"
    for head in ("problem,solution", "What is 1+0?,1"):
        path.write_text(f"{head}\n" + "1+1?,2\n" * 5)
        has = re.escape(repr(head.split(",")[0]))
        line = rf"^{path} row \d: column 'q' is missing; found .*{has}.*line of column names"
        with pytest.raises(UserError, match=line):
            own(str(path), **{"question": head.split(",")[0], "answer": "q", key: "q"})


def test_a_hub_data_set(monkeypatch):
    requests, parts = set(), {"train": rows(20), "test": rows(4, start=50)}

    def answer(hub, subset):
        requests.add((hub, subset))
        if hub == "me/absent":
            raise FileNotFoundError("no such data set")
        make = datasets.Dataset.from_list
        return {split: make(part, on_mixed_types="use_json") for split, part in parts.items()}

    monkeypatch.setattr(datasets, "load_dataset", answer)
    assert sizes("me/sums") == [16, 4, 4]
    del parts["test"]  # one split only: divided like a file
    assert sizes("me/sums:easy") == [13, 3, 4]
    message = r"^task\.source=me/absent: cannot get me/absent \(no such data set\); give a \.jsonl"
    with pytest.raises(UserError, match=message):
        own("me/absent")
    assert requests == {("me/sums", None), ("me/sums", "easy"), ("me/absent", None)}


@pytest.fixture
def gold_file(tmp_path, monkeypatch):
    """gold.py, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("gold.py").write_text(GOLD_FILE)


@pytest.mark.usefixtures("gold_file")
@pytest.mark.parametrize(
    ("gold", "solution", "expected"),
    [
        ("as_is", " 1/2 ", "1/2"),
        ("as_is", 0.5, "0.5"),
        ("gold.py:doubled", "unused", "9.0"),
        ("after_hashes", "Half.\n#### 1,000", "1000"),
        ("boxed", "So \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
    ],
    ids=["text as it is", "a number", "own", "after_hashes", "boxed"],
)
def test_gold_is_found_in_the_column(gold, solution, expected):
    source = write(Path("q.jsonl"), [{"problem": "?", "solution": solution, "half": 4.5}])
    assert own(source, gold=gold, kind="choice")[0]["answer"] == expected


@pytest.mark.usefixtures("gold_file")
@pytest.mark.parametrize(
    ("row", "gold", "message"),
    [
        ({"solution": 2}, "boxed", "column 'solution' must be text, is 2"),
        ({"half": 1}, "gold.py:number", "the gold answer must be text, is 1"),
        ({}, "gold.py:raises", "KeyError('absent')"),
    ],
    ids=["no text", "gold is no text", "gold raises"],
)
def test_a_row_without_gold_is_one_line_with_its_place(row, gold, message):
    source = write(Path("q.jsonl"), [{"problem": "1+1?", **row}])
    with pytest.raises(UserError, match=re.escape(f"q.jsonl:1: {message}; correct the row")):
        own(source, gold=gold)


def test_another_task_drops_the_keys_of_own():
    columns = ("task.source=org/data", "task.question=problem", "task.answer=solution")
    task = compose("task=own", "task.system=Add.", *columns).task
    assert (task.gold, task.kind) == ("as_is", "math")
    other = tasks.renamed(task, "gsm8k")
    assert (other.name, other.system, other.source, other.kind) == ("gsm8k", "Add.", None, None)
    assert [*tasks.problems(task), *tasks.problems(other)] == []
    assert tasks.renamed(task, "own") == task


def test_a_row_without_a_gold_answer_is_left_out_and_counted(tmp_path, capsys):
    (tmp_path / "gold.py").write_text(GOLD_FILE)
    lines = [{"problem": f"{i}?", "solution": 0, "half": i} for i in range(5)]
    write(tmp_path / "train.jsonl", lines)
    keys = {"gold": f"{tmp_path / 'gold.py'}:positive", "validation_size": 0}
    part = own(str(tmp_path), **keys)
    assert part["answer"][:] == ["2", "3", "4"]
    assert "2 of 5 rows of train are left out" in capsys.readouterr().err


def levels(part: datasets.Dataset) -> list[int]:
    return [part["level"][:].count(level) for level in ("easy", "hard")]


def test_a_split_keeps_the_shares_of_a_column_and_has_its_size(tmp_path):
    """90 easy and 30 hard questions."""
    lines = [{**row, "level": "hard" if i % 4 == 0 else "easy"} for i, row in enumerate(rows(120))]
    source = write(tmp_path / "q.jsonl", lines)
    keys = {"stratify": "level", "test_size": 40, "validation_size": 8}
    parts = {split: own(source, split, **keys) for split in tasks.SPLITS}
    shares = {split: levels(part) for split, part in parts.items()}
    assert shares == {"train": [54, 18], "validation": [6, 2], "test": [30, 10]}
    assert len({q for part in parts.values() for q in part["problem"]}) == 120
    with pytest.raises(UserError, match=r"^task\.test_size=120: leaves no training question"):
        own(source, test_size=120)
    with pytest.raises(UserError, match=r"^task\.stratify=prompt: "):
        own(source, stratify="prompt")
    for split in ("train", "test"):
        with pytest.raises(UserError, match=r"^task\.stratify=absent: .* no such column"):
            own(source, split, stratify="absent")


def test_a_folder_of_save_to_disk_has_a_remedy(tmp_path):
    datasets.Dataset.from_list([{"problem": "1+1?"}]).save_to_disk(tmp_path / "saved")
    with pytest.raises(UserError, match=r"save_to_disk.*load_from_disk\(<folder>\)\.to_parquet"):
        own(str(tmp_path / "saved"))
    splits = datasets.DatasetDict(train=datasets.load_from_disk(tmp_path / "saved"))
    splits.save_to_disk(tmp_path / "splits")
    with pytest.raises(UserError, match=r"load_from_disk\(<folder>\)\['train'\]\.to_parquet"):
        own(str(tmp_path / "splits"))
