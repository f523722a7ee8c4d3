"""Tasks: what a row means, how train is carved, and that bad data is an error with its place."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml

from pods import tasks
from pods.cli import UserError
from pods.tasks import competition
from tests.conftest import ROOT

OPTIONS = {"text": ["water", "salt", "sugar", "oil"], "label": ["A", "B", "C", "D"]}
ROWS: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": "How many?", "answer": "Some work. 1+1=<<1+1=2>>2\n#### 1,200"},
    "math": {"problem": "Find it.", "solution": "So \\boxed{1}, then \\boxed{\\frac{1}{2}}."},
    "math500": {"problem": "Find it.", "solution": "...", "answer": "\\frac{1}{2}"},
    "amc23": {"id": 0, "question": "Find it.", "answer": 27.0},
    "aime24": {"id": 60, "problem": "Find it.", "answer": "204"},
    "chemistry": {"question": "Which?", "choices": OPTIONS, "answerKey": "B", "idx": 7},
}
EXPECTED = {
    "gsm8k": ("1", "How many?", "1200", "math"),
    "math": ("1", "Find it.", "\\frac{1}{2}", "math"),
    "math500": ("1", "Find it.", "\\frac{1}{2}", "math"),
    "amc23": ("0", "Find it.", "27", "math"),
    "aime24": ("60", "Find it.", "204", "math"),
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
    ("math500", {"answer": None}, "column 'answer' is missing"),
    ("math500", {"answer": ["5"]}, "must be text or a number, is ['5']"),
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
    assert dataset.column_names == ["id", "question", "answer", "kind"]
    assert tuple(dataset[0].values()) == EXPECTED[name]


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
    with pytest.raises(UserError, match="gsm8k/test: no rows in"):
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
    assert competition.boxed(solution) == gold
    assert competition.boxed(solution, legacy=True) == legacy


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
    science = [
        {
            **ROWS["chemistry"],
            "idx": i,
            "type": "mcq-4-choices",
            "domain": domain,
            "details": {"level": level},
        }
        for i, (domain, level) in enumerate(
            [("Chemistry", "L3")] * 20 + [("Biology", "L3"), ("Chemistry", "L1")]
        )
    ]

    def answer(hub: str, subset: str | None = None, *, split: str) -> datasets.Dataset:
        asked.append((hub, subset, split))
        rows = (
            science
            if "SciKnow" in hub
            else [next(r for n, r in ROWS.items() if tasks.SOURCES[n].hub == hub)]
        )
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", answer)
    monkeypatch.setattr("pods.tasks.source.go_offline_if_unreachable", lambda: None)
    monkeypatch.delenv("PODS_DATA_DIR", raising=False)
    sizes = {name: len(tasks.load(name, "test")) for name in ROWS}
    assert sizes == {"gsm8k": 1, "math": 7, "math500": 1, "amc23": 1, "aime24": 1, "chemistry": 2}
    assert [entry for entry in asked if "math" not in entry[0].lower()] == [
        ("openai/gsm8k", "main", "test"),
        ("zwhe99/amc23", None, "test"),
        ("HuggingFaceH4/aime_2024", None, "train"),  # the hub calls all of it train
        ("hicai-zju/SciKnowEval", None, "test"),
    ]
    assert {subset for hub, subset, _ in asked if "hendrycks" in hub} == set(competition.SUBJECTS)


def test_an_absent_hub_is_one_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route\nmany more lines")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    monkeypatch.setattr("pods.tasks.source.go_offline_if_unreachable", lambda: None)
    monkeypatch.delenv("PODS_DATA_DIR", raising=False)
    with pytest.raises(
        UserError, match=r"task=gsm8k: cannot get openai/gsm8k \(no route\); set data_dir="
    ):
        tasks.load("gsm8k", "train")


@pytest.mark.parametrize("name", tasks.NAMES)
def test_every_task_has_a_config(name: str) -> None:
    own = yaml.safe_load((ROOT / "config" / "task" / f"{name}.yaml").read_text())
    assert own["name"] == name


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
    for (name, split), size in sizes.items():
        assert len(tasks.load(name, split, data_dir=str(shared / "data"))) == size
