"""Tasks: what a row means, how train is carved, and that bad data is an error with its place."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import yaml

import rewards
from pods import tasks
from pods.config import keys as config
from pods.config.errors import UserError
from pods.tasks import math
from tests.conftest import ROOT

DIGESTS = {  # of id, question, answer and kind, recorded before the tasks were rewritten
    ("gsm8k", "train"): "2eae111102bab69a",
    ("gsm8k", "validation"): "f2191c03126bcf22",
    ("gsm8k", "test"): "bc583919f6ae5f8f",
    ("chemistry", "train"): "06b7b5099da17e39",
    ("chemistry", "validation"): "af9957743315b1b6",
    ("chemistry", "test"): "84ed4d69433fff29",
    ("math500", "test"): "1bcc710981354155",
    ("amc23", "test"): "624376dde30da9ae",
    ("aime24", "test"): "cf157e154683c72d",
}
OPTIONS = {"text": ["water", "salt", "sugar", "oil"], "label": ["A", "B", "C", "D"]}
ROWS: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": "How many?", "answer": "Some work. 1+1=<<1+1=2>>2\n#### 1,200"},
    "math": {
        "problem": "Find the half.",
        "solution": "So \\boxed{1}, then \\boxed{\\frac{1}{2}}.",
        "level": "Level 3",
        "type": "Algebra",
    },
    "math500": {
        "problem": "Find the third.",
        "solution": "Divide by 3.",
        "answer": "\\frac{1}{3}",
        "subject": "Precalculus",
        "level": 2,
        "unique_id": "test/precalculus/8.json",
    },
    "amc23": {"id": 0, "question": "Find the cube.", "answer": 27.0, "url": "12A/1"},
    "aime24": {
        "id": 60,
        "problem": "Find the sum.",
        "solution": "200 + 4.",
        "answer": "204",
        "url": "I/1",
        "year": "2024",
    },
    "chemistry": {
        "question": "Which?",
        "choices": OPTIONS,
        "answerKey": "B",
        "domain": "Chemistry",
        "details": {"level": "L3", "task": "which_one", "subtask": "salt"},
        "type": "mcq-4-choices",
        "idx": 7,
    },
}
EXPECTED = {
    # id, question, answer, kind
    "gsm8k": ("1", "How many?", "1200", "math"),
    "math": ("1", "Find the half.", "\\frac{1}{2}", "math"),
    "math500": ("test/precalculus/8.json", "Find the third.", "\\frac{1}{3}", "math"),
    "amc23": ("0", "Find the cube.", "27", "math"),
    "aime24": ("60", "Find the sum.", "204", "math"),
    "chemistry": ("7", "Which?\nA. water\nB. salt\nC. sugar\nD. oil", "B", "choice"),
}
BAD = [
    # task, the second row's changes (None: the column is missing), what the error says
    ("gsm8k", {"answer": None}, "column 'answer' is missing; found question"),
    ("gsm8k", {"answer": 5}, "column 'answer' must be text, is 5"),
    ("gsm8k", {"answer": "no marker"}, 'has no "####"'),
    ("gsm8k", {"answer": "work #### "}, "the gold answer is empty"),
    ("gsm8k", {"question": " "}, "the question is empty"),
    ("math", {"solution": "nothing boxed"}, "has no \\boxed{...}"),
    ("math", {"solution": "\\boxed{\\frac{1}{2}"}, "never closed"),
    ("math500", {"answer": None, "unique_id": "2"}, "column 'answer' is missing"),
    ("math500", {"answer": ["5"], "unique_id": "2"}, "must be text or a number, is ['5']"),
    ("amc23", {"answer": True, "id": 1}, "must be text or a number, is True"),
    ("amc23", {"answer": float("nan"), "id": 1}, "must be text or a number, is nan"),
    ("amc23", {}, "id '0' is also the id of"),
    ("chemistry", {"answerKey": "E", "idx": 8}, "answerKey 'E' is none of the labels"),
    ("chemistry", {"choices": {"text": ["a"], "label": []}, "idx": 8}, "0 labels for 1 options"),
    ("chemistry", {"choices": "A, B", "idx": 8}, "column 'choices' must hold text and label lists"),
]


def write(folder: Path, name: str, split: str, lines: list[Any]) -> Path:
    path = folder / name / f"{split}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(text) + "\n")
    return path


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_each_task(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, "test", [ROWS[name]])
    dataset = tasks.load(name, "test", data_dir=str(tmp_path))
    ours = dict(zip(("id", "question", "answer", "kind"), EXPECTED[name], strict=True))
    assert dataset[0] == {**ROWS[name], **ours}  # the other columns are unchanged


@pytest.mark.parametrize("version", rewards.VERSIONS)
@pytest.mark.parametrize("name", tasks.TASKS)
def test_the_right_completion_of_a_task_earns_more_than_the_wrong_one(
    name: str, version: str
) -> None:
    task = tasks.TASKS[name]
    gold = task.gold(task.example, False)
    assert task.question(task.example)
    assert rewards.grade(task.right, gold, version, task.kind)
    assert not rewards.grade(task.wrong, gold, version, task.kind)
    assert rewards.is_well_formed(task.right)
    assert rewards.is_well_formed(task.wrong)
    scores = rewards.score([task.right, task.wrong], [gold] * 2, version, task.kind)
    right, wrong = (sum(scores[reward][i] for reward in scores) for i in range(2))
    assert right > wrong


def test_columns_of_other_types_are_unchanged_and_names_of_ours_win(tmp_path: Path) -> None:
    gold = {"question": "1+1?", "answer": "#### 2"}
    rows = [
        {**gold, "kind": "sum", "prompt": "Add!", "mixed": 1, "nested": {"a": [1]}, "float": 1},
        {**gold, "mixed": "two", "nested": {"b": None}, "float": 2.5, "late": [1, "x"]},
    ]
    write(tmp_path, "gsm8k", "test", rows)
    dataset = tasks.load("gsm8k", "test", data_dir=str(tmp_path)).select([1, 0])
    assert dataset["mixed"][:] == ["two", 1]
    assert dataset["nested"][:] == [{"b": None}, {"a": [1]}]
    assert dataset["float"][:] == [2.5, 1.0]
    assert dataset["late"][:] == [[1, "x"], None]
    assert dataset["kind"][:] == ["math", "math"]
    assert dataset["answer"][:] == ["2", "2"]
    assert "prompt" not in dataset.column_names


def test_a_column_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    write(tmp_path, "gsm8k", "test", [{**ROWS["gsm8k"], "huge": 2**70}])
    with pytest.raises(UserError, match=r"column 'huge': cannot be stored \(OverflowError"):
        tasks.load("gsm8k", "test", data_dir=str(tmp_path))


@pytest.mark.parametrize(("name", "changes", "message"), BAD)
def test_a_bad_row_is_an_error_with_file_and_line(
    name: str, changes: dict, message: str, tmp_path: Path
) -> None:
    row = {key: value for key, value in {**ROWS[name], **changes}.items() if value is not None}
    path = write(tmp_path, name, "test", [ROWS[name], row])
    with pytest.raises(UserError) as error:
        tasks.load(name, "test", data_dir=str(tmp_path))
    assert str(error.value).startswith(f"{path}:2: ")
    assert message in str(error.value)


@pytest.mark.parametrize("line", ["{", "[1]", '"text"', "\\u0000", "null"])
def test_a_line_that_is_no_object(line: str, tmp_path: Path) -> None:
    path = write(tmp_path, "gsm8k", "test", [ROWS["gsm8k"], "", line])  # blank lines do not count
    with pytest.raises(UserError, match="JSON object") as error:
        tasks.load("gsm8k", "test", data_dir=str(tmp_path))
    assert str(error.value).startswith(f"{path}:3: ")


def test_an_empty_and_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*gsm8k.test\.jsonl"):
        tasks.load("gsm8k", "test", data_dir=str(tmp_path))
    write(tmp_path, "gsm8k", "test", [])
    with pytest.raises(UserError, match=f"^gsm8k/test: no rows in {tmp_path}"):
        tasks.load("gsm8k", "test", data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("solution", "gold", "legacy"),
    [
        ("\\boxed{5}", "5", "5"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", "\\frac{1"),  # the published cut
        ("\\boxed{ \\{1,2\\} }", "\\{1,2\\}", "\\{1,2\\"),
        ("\\boxed{1} or \\boxed{2}", "2", "2"),
        ("so \\fbox{5}", "5", "5"),
        ("so $\\boxed 5$.", "5", "5"),
    ],
)
def test_gold_with_balanced_braces_or_the_published_cut(
    solution: str, gold: str, legacy: str
) -> None:
    row = {"solution": solution}
    assert math.boxed(row, "solution") == gold
    assert math.boxed(row, "solution", legacy=True) == legacy


def test_legacy_gold_reaches_the_rows(tmp_path: Path) -> None:
    write(tmp_path, "math", "test", [ROWS["math"]])
    assert tasks.load("math", "test", data_dir=str(tmp_path), legacy_gold=True)[0]["answer"] == (
        "\\frac{1"
    )


def carve(folder: Path, size: int) -> tuple[list[str], list[str]]:
    kwargs = {"data_dir": str(folder), "validation_size": size}
    return tuple(tasks.load("gsm8k", split, **kwargs)["id"][:] for split in ("train", "validation"))


def test_validation_is_carved_from_train(tmp_path: Path) -> None:
    write(tmp_path, "gsm8k", "train", [ROWS["gsm8k"]] * 100)
    train, validation = carve(tmp_path, 20)
    assert (len(train), len(validation)) == (80, 20)
    assert sorted(train + validation, key=int) == [str(i) for i in range(1, 101)]
    assert carve(tmp_path, 20) == (train, validation)  # the same for every run


def test_the_validation_questions_stay_the_same_ones(tmp_path: Path) -> None:
    """Recorded before the tasks were rewritten: runs must stay comparable with older ones."""
    write(tmp_path, "gsm8k", "train", [ROWS["gsm8k"]] * 100)
    write(tmp_path, "math", "train", [ROWS["math"]] * 100)
    assert carve(tmp_path, 7)[1] == ["19", "22", "34", "43", "51", "57", "60"]
    math_ids = tasks.load("math", "validation", data_dir=str(tmp_path), validation_size=7)["id"]
    assert math_ids[:] == ["5", "38", "47", "90", "84", "33", "97"]  # of the shuffled rows


def test_math_trains_on_the_shuffled_rows_without_the_validation_questions(tmp_path: Path) -> None:
    """The order is numpy's for seed 42, as in the published code, less the carved questions."""
    write(tmp_path, "math", "train", [ROWS["math"]] * 50)
    keys = {"data_dir": str(tmp_path), "validation_size": 7}
    train, validation = (tasks.load("math", s, **keys)["id"][:] for s in ("train", "validation"))
    shuffled = [str(i + 1) for i in np.random.default_rng(42).permutation(50)]
    assert len(validation) == 7
    assert train == [i for i in shuffled if i not in validation]
    assert validation == [i for i in shuffled if i in validation]


def test_a_small_file_gives_a_fifth_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "gsm8k", "train", [ROWS["gsm8k"]] * 10)
    train, validation = carve(tmp_path, 256)
    assert (len(train), len(validation)) == (8, 2)
    assert "validation_size=256 is more than a fifth of the 10" in capsys.readouterr().err


def test_no_validation_is_possible_but_then_there_is_none(tmp_path: Path) -> None:
    write(tmp_path, "gsm8k", "train", [ROWS["gsm8k"]] * 10)
    train = tasks.load("gsm8k", "train", data_dir=str(tmp_path), validation_size=0)
    assert len(train) == 10
    with pytest.raises(UserError, match="validation_size=0: leaves no validation questions"):
        tasks.load("gsm8k", "validation", data_dir=str(tmp_path), validation_size=0)


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("gsm9k", "test", "task=gsm9k: unknown; one of gsm8k, "),
        ("gsm8k", "dev", "split=dev: unknown; one of train, validation, test"),
        ("math500", "train", "task=math500: has no train split"),
        ("aime24", "validation", "task=aime24: has no validation split"),
    ],
)
def test_mistakes_are_named(name: str, split: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tasks.load(name, split)


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "gsm8k", "test", [ROWS["gsm8k"]])
    monkeypatch.setenv("PODS_DATA_DIR", str(tmp_path))
    assert len(tasks.load("gsm8k", "test")) == 1


def test_arithmetic_needs_no_data() -> None:
    parts = [tasks.load("arithmetic", split) for split in tasks.SPLITS]
    questions = [set(part["question"]) for part in parts]
    assert sum(map(len, questions)) == len(set.union(*questions)) == sum(map(len, parts))
    assert set(parts[0]["kind"]) == {"math"}


def test_the_hub_is_asked_for_the_published_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    unwanted = [
        ("Biology", "L3", "mcq-4-choices"),
        ("Chemistry", "L1", "mcq-4-choices"),
        ("Chemistry", "L3", "true_or_false"),
        ("Chemistry", "L3", "open-ended-qa"),
    ]
    wanted = [("Chemistry", "L3", f"mcq-{4 - 2 * (i % 2)}-choices") for i in range(20)]
    science = [
        {**ROWS["chemistry"], "idx": i, "domain": domain, "details": {"level": level}, "type": kind}
        for i, (domain, level, kind) in enumerate([*unwanted, *wanted])
    ]

    def answer(hub: str, subset: str | None = None, *, split: str) -> datasets.Dataset:
        asked.append((hub, subset, split))
        rows = (
            science
            if "SciKnow" in hub
            else [next(r for n, r in ROWS.items() if tasks.TASKS[n].hub == hub)]
        )
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", answer)
    monkeypatch.delenv("PODS_DATA_DIR", raising=False)
    sizes = {name: len(tasks.load(name, "test")) for name in ROWS}
    assert sizes == {"gsm8k": 1, "math": 7, "math500": 1, "amc23": 1, "aime24": 1, "chemistry": 2}
    assert [entry for entry in asked if "math" not in entry[0].lower()] == [
        ("openai/gsm8k", "main", "test"),
        ("zwhe99/amc23", None, "test"),
        ("HuggingFaceH4/aime_2024", None, "train"),  # the hub calls all of it train
        ("hicai-zju/SciKnowEval", None, "test"),
    ]
    assert {subset for hub, subset, _ in asked if "hendrycks" in hub} == set(math.SUBJECTS)
    chosen = [i for split in tasks.SPLITS for i in tasks.load("chemistry", split)["id"]]
    assert sorted(chosen, key=int) == [str(i) for i in range(4, 24)]  # none of the unwanted


def test_an_absent_hub_is_one_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route\nmany more lines")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    monkeypatch.delenv("PODS_DATA_DIR", raising=False)
    with pytest.raises(
        UserError, match=r"task=gsm8k: cannot get openai/gsm8k \(no route\); set data_dir="
    ):
        tasks.load("gsm8k", "train")


@pytest.mark.parametrize("key", ["source", "question", "answer", "gold", "kind"])
def test_keys_of_task_own_are_refused_for_a_built_in_task(key: str) -> None:
    with pytest.raises(UserError, match=rf"^task\.{key}=x: only task=own has this key; remove it"):
        tasks.load("gsm8k", "train", **{key: "x"})


def test_the_defaults_are_those_of_the_config(tmp_path: Path) -> None:
    write(tmp_path, "gsm8k", "train", [ROWS["gsm8k"]] * 2000)
    shared_keys = yaml.safe_load((ROOT / "config" / "task" / "_shared.yaml").read_text())
    size = shared_keys["validation_size"]
    assert len(tasks.load("gsm8k", "validation", data_dir=str(tmp_path))) == size
    assert shared_keys.keys() <= config.Task.model_fields.keys()


@pytest.mark.parametrize("name", tasks.NAMES)
def test_every_task_has_a_config(name: str) -> None:
    own = yaml.safe_load((ROOT / "config" / "task" / f"{name}.yaml").read_text())
    assert own["name"] == name


# What a template leaves open: options, quoted text, words with a digit (numbers, SMILES).
OPEN = re.compile(r"(?m)^[A-Z]\. .*$|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|\S*[0-9]\S*")


def plain(question: str) -> str:
    """In one case and spacing."""
    return " ".join(question.split()).casefold()


def disjoint(splits: dict[str, list[str]]) -> bool:
    """Whether no two splits share a question."""
    sets = [set(map(plain, questions)) for questions in splits.values()]
    return len(set.union(*sets)) == sum(map(len, sets))


def test_no_question_of_arithmetic_is_in_two_splits() -> None:
    assert disjoint({s: tasks.load("arithmetic", s)["question"] for s in tasks.SPLITS})


@pytest.mark.parametrize(
    ("name", "templated"),
    [("gsm8k", 0), ("chemistry", 210)],  # docs/paper.md says so, too
)
def test_no_question_of_the_shared_data_is_in_two_splits(
    name: str, templated: int, shared: Path
) -> None:
    data = str(shared / "data")
    splits = {s: tasks.load(name, s, data_dir=data)["question"] for s in tasks.SPLITS}
    assert disjoint(splits)
    templates = {plain(OPEN.sub("#", question)) for question in splits["train"]}
    count = sum(plain(OPEN.sub("#", question)) in templates for question in splits["test"])
    assert count == templated


def test_the_shared_data(shared: Path) -> None:
    sizes = {
        ("gsm8k", "train"): 7473 - 256,
        ("gsm8k", "validation"): 256,
        ("gsm8k", "test"): 1319,
        ("math500", "test"): 500,
        ("amc23", "test"): 40,
        ("aime24", "test"): 30,
        ("chemistry", "train"): 1890 - 256,
        ("chemistry", "validation"): 256,
        ("chemistry", "test"): 210,
    }
    questions: dict[str, set[str]] = {}
    for (name, split), size in sizes.items():
        rows = tasks.load(name, split, data_dir=str(shared / "data"))
        assert len(rows) == size
        columns = [rows[column][:] for column in ("id", "question", "answer", "kind")]
        digest = hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]
        assert digest == DIGESTS[name, split]
        questions.setdefault(name, set()).update(columns[1])
    for name, found in questions.items():  # the examples are real
        assert tasks.TASKS[name].question(tasks.TASKS[name].example) in found
