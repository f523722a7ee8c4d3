"""Files as people have them: duplicate names, narrow floats, mixed columns, snapshots."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from pods.config.errors import UserError
from tests.configs import load_rows
from tests.unit.test_tasks_own import own, rows, write

TWICE = {
    "q.csv": b"problem,solution,solution\n1+1?,2,3\n",
    "q.tsv": b"problem\tsolution\tsolution\n1+1?\t2\t3\n",
    "q.json": b'[{"problem": "1+1?", "solution": 2, "solution": 3}]',
    "q.jsonl": b'{"problem": "1+1?", "solution": 2, "solution": 3}\n',
}


@pytest.mark.parametrize("name", [*TWICE, "q.parquet"])
def test_two_columns_of_one_name_are_refused_by_name(name, tmp_path):
    path = tmp_path / name
    if name in TWICE:
        path.write_bytes(TWICE[name])
    else:
        columns = [pyarrow.array([text]) for text in ("1+1?", "2", "3")]
        names = ["problem", "solution", "solution"]
        parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), path)
    with pytest.raises(UserError, match=f"{path}.*two columns.*'solution'"):
        own(str(path))


def test_columns_without_a_name_are_no_duplicates(tmp_path):
    path = tmp_path / "test.csv"  # a spreadsheet with two empty columns
    path.write_text("problem,solution,,\n1+1?,2,,\n")
    assert own(str(tmp_path), "test")["answer"][:] == ["2"]


def float32(values: list[Any]) -> pyarrow.Array:
    return pyarrow.array(values, pyarrow.float32())


def test_narrow_floats_of_parquet_are_their_shortest_decimals(tmp_path):
    table = pyarrow.table(
        {
            "problem": ["a?", "b?", "c?"],
            "solution": float32([0.1, 27, 1 / 3]),
            "other": float32([0.2, None, 1e-7]),
            "wide": [0.1, 1 / 3, 2.0],
        }
    )
    parquet.write_table(table, tmp_path / "test.parquet")
    part = own(str(tmp_path), "test")
    assert part["answer"][:] == ["0.1", "27", "0.33333334"]
    assert part["other"][:] == [0.2, None, 1e-7]
    assert part["wide"][:] == [0.1, 1 / 3, 2.0]


def test_narrow_floats_of_the_hub_are_their_shortest_decimals(monkeypatch):
    table = pyarrow.table({"problem": ["a?"], "solution": float32([0.1])})
    part = datasets.Dataset(table)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: {"train": part, "test": part})
    assert own("me/sums", "test")["answer"][:] == ["0.1"]


@pytest.mark.parametrize(
    ("number", "gold"),
    [("1.50", "1.5"), ("27.00", "27"), ("0.0000001", "0.0000001"), ("1E+2", "100")],
)
def test_decimals_are_read(number, gold, tmp_path):
    table = pyarrow.table({"problem": ["?"], "solution": [Decimal(number)]})
    parquet.write_table(table, tmp_path / "test.parquet")
    assert own(str(tmp_path), "test")["answer"][:] == [gold]


MIXED = [
    *("007", "true", "null", "", "  ", '"quoted"', "[1, 2]", '{"a": 1}', "1e3", "two", "é"),
    *(7, 2.5, True, None, [1, "007"], {"a": "007"}, {"b": ["true", 1]}),
]


def test_a_text_of_a_mixed_column_stays_a_text(tmp_path):
    lines = [
        {
            "problem": f"{i}?",
            "solution": 1,
            "mixed": value,
            "inner": {"x": value},
            "list": [value, 1],
        }
        for i, value in enumerate(MIXED)
    ]
    write(tmp_path / "test.jsonl", lines)
    part = own(str(tmp_path), "test")
    for name, column in (
        ("mixed", MIXED),
        ("inner", [{"x": value} for value in MIXED]),
        ("list", [[value, 1] for value in MIXED]),
    ):
        assert [repr(value) for value in part[name]] == [repr(value) for value in column]


def shard(path: Path, start: int, count: int = 4) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"problem": [f"{i}?" for i in range(start, start + count)], "solution": [1] * count}
    parquet.write_table(pyarrow.table(columns), path)


def test_the_snapshot_of_a_hub_repository_is_read(tmp_path):
    (tmp_path / "README.md").touch()
    for i in range(3):
        shard(tmp_path / "data" / f"train-0000{i}-of-00003.parquet", 10 * i)
    shard(tmp_path / "data" / "test-00000-of-00001.parquet", 100)
    train = own(str(tmp_path), "train", validation_size=0)
    assert train["question"][:] == [f"{10 * i + j}?" for i in range(3) for j in range(4)]
    assert train["id"][:] == [str(i + 1) for i in range(12)]
    assert len(own(str(tmp_path / "data"), "test")) == 4
    (tmp_path / "data" / "train-00001-of-00003.parquet").unlink()
    with pytest.raises(UserError, match=r"train-00000-of-00003.parquet"):
        own(str(tmp_path))


@pytest.mark.parametrize("name", ["dev", "val", "valid", "validation"])
def test_validation_has_several_names(name, tmp_path):
    write(tmp_path / "train.jsonl", rows(20))
    write(tmp_path / f"{name}.jsonl", rows(2, start=200))
    assert [len(own(str(tmp_path), split)) for split in ("train", "validation")] == [20, 2]
    other = "validation" if name != "validation" else "dev"
    write(tmp_path / f"{other}.jsonl", rows(2, start=300))
    with pytest.raises(UserError, match=f"{other}.jsonl"):
        own(str(tmp_path))


def test_a_split_of_the_hub_called_dev_is_validation(monkeypatch):
    part = datasets.Dataset.from_list(rows(5), on_mixed_types="use_json")
    parts = {"train": part, "dev": part}
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: parts)
    assert [len(own("me/sums", split)) for split in ("train", "validation")] == [5, 5]


def test_a_json_file_that_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / "q.json").write_text("[" * 200_000)
    with pytest.raises(UserError, match=r"q\.json: cannot be read"):
        own(str(tmp_path / "q.json"))


def test_a_row_of_a_built_in_task_has_each_name_once(tmp_path):
    path = tmp_path / "gsm8k" / "test.jsonl"
    path.parent.mkdir()
    path.write_text('{"question": "?", "answer": "#### 1", "answer": "#### 2"}\n')
    with pytest.raises(UserError, match=f"{path}:1.*two columns.*'answer'"):
        load_rows("gsm8k", "test", data_dir=str(tmp_path))
