"""Tasks: what a row means, how train is carved, and that bad data is an error with its location."""

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import http_backoff

from pods import tasks
from pods.config.command import is_no_retry
from pods.config.errors import UserError
from pods.tasks import math
from pods.tasks.task import say_once
from tests.configs import load_rows
from tests.conftest import ROOT

SHARED = {  # rows, and the digest of id, question, answer and kind: runs stay comparable
    ("gsm8k", "train"): (7473 - 256, "2eae111102bab69a"),
    ("gsm8k", "validation"): (256, "f2191c03126bcf22"),
    ("gsm8k", "test"): (1319, "bc583919f6ae5f8f"),
    ("chemistry", "train"): (1890 - 256, "06b7b5099da17e39"),
    ("chemistry", "validation"): (256, "af9957743315b1b6"),
    ("chemistry", "test"): (210, "84ed4d69433fff29"),
    ("math500", "test"): (500, "1bcc710981354155"),
    ("amc23", "test"): (40, "624376dde30da9ae"),
    ("aime24", "test"): (30, "cf157e154683c72d"),
}
CASES: dict[str, tuple[dict[str, Any], str, str]] = {  # task -> a row, its id and gold answer
    "gsm8k": ({"question": "How many?", "answer": "1+1=<<1+1=2>>2\n#### 1,200"}, "1", "1200"),
    "math": (
        {"problem": "The half?", "solution": "\\boxed{1}, \\boxed{\\frac{1}{2}}", "level": 2},
        "1",
        "\\frac{1}{2}",
    ),
    "math500": (
        {"problem": "The third?", "answer": "\\frac{1}{3}", "unique_id": "test/8.json"},
        "test/8.json",
        "\\frac{1}{3}",
    ),
    "amc23": ({"id": 0, "question": "The cube?", "answer": 27.0, "url": "12A/1"}, "0", "27"),
    "aime24": ({"id": 60, "problem": "The sum?", "answer": "204", "year": "2024"}, "60", "204"),
    "chemistry": (
        {
            "question": "Which?",
            "choices": {"text": ["water", "salt"], "label": ["A", "B"]},
            "idx": 7,
            "answerKey": "B",
            "domain": "Chemistry",
            "details": {"level": "L3"},
            "type": "mcq",
        },
        "7",
        "B",
    ),
}
ROWS = {name: row for name, (row, *_) in CASES.items()}
BAD = [  # task, the second row's changes (None: the column is missing), what the error says
    ("gsm8k", {"answer": None}, "column 'answer' is missing; found 'question'"),
    ("gsm8k", {"answer": "no marker"}, 'has no "####"'),
    ("gsm8k", {"answer": "work #### "}, "the gold answer must be text, is ''"),
    ("math", {"solution": "nothing boxed"}, "has no \\boxed{...}"),
    ("math", {"solution": "\\boxed{\\frac{1}{2}"}, "never closed"),
    ("amc23", {"answer": True, "id": 1}, "must be text or a number, is True"),
    ("amc23", {"answer": float("nan"), "id": 1}, "must be text or a number, is nan"),
    ("amc23", {}, "id '0' is also the id of"),
    ("chemistry", {"answerKey": "E", "idx": 8}, "answerKey 'E' is none of the labels"),
    ("chemistry", {"choices": {"text": ["a"], "label": []}, "idx": 8}, "longer than"),
    ("chemistry", {"choices": "A, B", "idx": 8}, "string indices"),
]


def write(folder: Path, name: str, split: str, lines: list[Any]) -> Path:
    path = folder / name / f"{split}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines))
    return path


def load(name: str, split: str, folder: Path, **settings: Any) -> datasets.Dataset:
    return load_rows(name, split, data_dir=str(folder), **settings)


@pytest.mark.parametrize("name", CASES)
def test_a_row_of_each_task(name, tmp_path):
    row, identity, answer = CASES[name]
    write(tmp_path, name, "test", [row])
    question = row.get("question", row.get("problem"))
    ours = {"id": identity, "question": question, "answer": answer, "kind": "math"}
    if name == "chemistry":
        ours |= {"question": "Which?\nA. water\nB. salt", "kind": "choice"}
    assert load(name, "test", tmp_path)[0] == row | ours  # other columns unchanged


def test_columns_of_other_types_are_unchanged_and_names_of_ours_win(tmp_path):
    gold = {"question": "1+1?", "answer": "#### 2"}
    rows = [
        {**gold, "kind": "sum", "prompt": "Add!", "mixed": 1, "nested": {"a": [1]}, "float": 1},
        {**gold, "mixed": "two", "nested": {"b": None}, "float": 2.5, "late": [1, "x"]}
        | {"prompt_ids": [1]},
    ]
    write(tmp_path, "gsm8k", "test", rows)
    dataset = load("gsm8k", "test", tmp_path).select([1, 0])
    assert {name: dataset[name][:] for name in dataset.column_names} == {
        "id": ["2", "1"],
        "question": ["1+1?"] * 2,
        "answer": ["2", "2"],
        "kind": ["math", "math"],
        "mixed": ["two", 1],
        "nested": [{"b": None}, {"a": [1]}],
        "float": [2.5, 1.0],
        "late": [[1, "x"], None],
    }


@pytest.mark.parametrize(("name", "changes", "message"), BAD)
def test_a_bad_row_is_an_error_with_file_and_line(name, changes, message, tmp_path):
    row = {key: value for key, value in {**ROWS[name], **changes}.items() if value is not None}
    path = write(tmp_path, name, "test", [ROWS[name], row])
    with pytest.raises(UserError, match=re.escape(f"{path}:2: ") + f".*{re.escape(message)}"):
        load(name, "test", tmp_path)


def test_a_missing_file_is_named_with_what_belongs_there(tmp_path):
    missing = r"cannot read .*gsm8k.test\.jsonl .*; put the rows of openai/gsm8k there"
    with pytest.raises(UserError, match=missing):
        load("gsm8k", "test", tmp_path)


@pytest.mark.parametrize("line", ["{", "[1]", '"text"', "\\u0000", "null"])
def test_a_line_that_is_no_object_is_named(line, tmp_path):
    write(tmp_path, "gsm8k", "test", [ROWS["gsm8k"], "", line])
    with pytest.raises(UserError, match=r"gsm8k.test\.jsonl:3: not a JSON object"):
        load("gsm8k", "test", tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param([], "^gsm8k/test: no rows in ", id="empty"),
        pytest.param(
            [{**ROWS["gsm8k"], "huge": 2**70}],
            r"column 'huge': cannot be stored \(OverflowError",
            id="a number of 71 bits",
        ),
    ],
)
def test_rows_that_cannot_be_used_are_named(rows, message, tmp_path):
    write(tmp_path, "gsm8k", "test", rows)
    with pytest.raises(UserError, match=message):
        load("gsm8k", "test", tmp_path)


@pytest.mark.parametrize(
    ("solution", "gold", "published"),
    [
        ("\\boxed{5}", "5", "5"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", "\\frac{1"),
        ("\\boxed{ \\{1,2\\} }", "\\{1,2\\}", "\\{1,2\\"),
        ("\\boxed{1} or \\boxed{2}", "2", "2"),
        ("so \\fbox{5}", "5", "5"),
        ("so $\\boxed 5$.", "5", "5"),
        ("so $\\fbox {5}$.", "5", "5"),
    ],
)
def test_gold_with_balanced_braces_or_the_published_cut(solution, gold, published, tmp_path):
    write(tmp_path, "math", "test", [{**ROWS["math"], "solution": solution}])
    assert load("math", "test", tmp_path)["answer"][:] == [gold]
    assert load("math_published", "test", tmp_path)["answer"][:] == [published]


@pytest.mark.parametrize(
    ("name", "order", "validation"),
    [
        ("gsm8k", np.arange(100), ["19", "22", "34", "43", "51", "57", "60"]),
        (
            "math",
            np.random.default_rng(42).permutation(100),
            ["5", "38", "47", "90", "84", "33", "97"],
        ),
    ],
    ids=["gsm8k", "math"],
)
def test_validation_is_carved_from_train_and_stays_the_same(name, order, validation, tmp_path):
    """The order is numpy's for seed 42, as in the published code, less the carved questions."""
    write(tmp_path, name, "train", [ROWS[name]] * 100)
    assert load(name, "validation", tmp_path, validation_size=7)["id"][:] == validation
    train = load(name, "train", tmp_path, validation_size=7)["id"][:]
    assert train == [str(i + 1) for i in order if str(i + 1) not in validation]


def test_a_small_file_gives_a_fifth_and_says_so_once(tmp_path, capsys, monkeypatch):
    say_once.cache_clear()
    write(tmp_path, "gsm8k", "train", [ROWS["gsm8k"]] * 10)
    monkeypatch.setenv("PODS_DATA_DIR", str(tmp_path))
    assert len(load_rows("gsm8k", "train")) == 8
    assert len(load_rows("gsm8k", "validation")) == 2  # of another run, say
    said = "2 of the 10 training questions are its validation split"
    assert capsys.readouterr().err.count(said) == 1
    assert len(load("gsm8k", "train", tmp_path, validation_size=0)) == 10
    with pytest.raises(UserError, match="validation_size=0: leaves no validation questions"):
        load("gsm8k", "validation", tmp_path, validation_size=0)


@pytest.mark.parametrize(
    ("name", "split", "settings", "message"),
    [
        ("gsm9k", "test", {}, "task=gsm9k: unknown; one of gsm8k, "),
        ("gsm8k", "dev", {}, "split=dev: unknown; one of train, validation, test"),
        ("math500", "train", {}, "task=math500: has no train split"),
        ("aime24", "validation", {}, "task=aime24: has no validation split"),
        ("gsm8k", "train", {"source": "x"}, "^task.source=x: only task=own has this key"),
    ],
    ids=["task", "split", "no train", "no validation", "a key of another task"],
)
def test_mistakes_are_named(name, split, settings, message):
    with pytest.raises(UserError, match=message):
        load_rows(name, split, **settings)


def test_the_hub_is_asked_for_the_published_sets(monkeypatch):
    requests = []
    kinds = [  # the first four are left out
        ("Biology", "L3", "mcq-4-choices"),
        ("Chemistry", "L1", "mcq-4-choices"),
        ("Chemistry", "L3", "true_or_false"),
        ("Chemistry", "L3", "open-ended-qa"),
        *(("Chemistry", "L3", f"mcq-{4 - 2 * (i % 2)}-choices") for i in range(20)),
    ]
    science = [
        {**ROWS["chemistry"], "idx": i, "domain": domain, "details": {"level": level}, "type": kind}
        for i, (domain, level, kind) in enumerate(kinds)
    ]

    def answer(hub, subset=None, *, split):
        requests.append((hub, subset, split))
        if (hub, split) == ("openai/gsm8k", "train"):
            raise ConnectionError("no route\nmany more lines")
        name = next(name for name in ROWS if tasks.TASKS[name].hub == hub)
        return datasets.Dataset.from_list(science if name == "chemistry" else [ROWS[name]])

    monkeypatch.setattr(datasets, "load_dataset", answer)
    monkeypatch.delenv("PODS_DATA_DIR", raising=False)
    sizes = {name: len(load_rows(name, "test")) for name in ROWS}
    assert sizes == {"gsm8k": 1, "math": 7, "math500": 1, "amc23": 1, "aime24": 1, "chemistry": 2}
    assert requests == [
        ("openai/gsm8k", "main", "test"),
        *(("EleutherAI/hendrycks_math", subject, "test") for subject in math.SUBJECTS),
        ("HuggingFaceH4/MATH-500", None, "test"),
        ("zwhe99/amc23", None, "test"),
        ("HuggingFaceH4/aime_2024", None, "train"),  # the hub calls all of it train
        ("hicai-zju/SciKnowEval", None, "test"),
    ]
    ids = [int(i) for split in tasks.SPLITS for i in load_rows("chemistry", split)["id"]]
    assert (ids[-2:], sorted(ids)) == ([19, 13], [*range(4, 24)])  # the split of seed 42
    message = r"^task=gsm8k: cannot get openai/gsm8k \(no route\); set data_dir="
    with pytest.raises(UserError, match=message):
        load_rows("gsm8k", "train")


def test_lines_of_the_hub_about_retries_are_not_shown(caplog, monkeypatch):
    log = logging.getLogger("huggingface_hub.utils._http")
    monkeypatch.setattr(log, "filters", [])  # of commands that ran before in this process
    with pytest.raises(OfflineModeIsEnabled):  # as without a network: HF_HUB_OFFLINE=1
        http_backoff(
            "HEAD",
            "https://huggingface.co",
            base_wait_time=0,
            max_retries=2,
            retry_on_exceptions=OfflineModeIsEnabled,
        )
    log.warning("Rate limited. Waiting 9.0s before retry")
    assert len(caplog.records) == 3 + 2 + 1
    assert [*filter(is_no_retry, caplog.records)] == caplog.records[-1:]


@pytest.mark.parametrize(("name", "split"), SHARED)
def test_the_shared_data(name, split, shared):
    rows = load(name, split, shared / "data")
    columns = [rows[column][:] for column in ("id", "question", "answer", "kind")]
    digest = hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]
    assert (len(rows), digest) == SHARED[name, split]


def test_tasks_need_no_package_of_the_commands(tmp_path):
    """A TRL script in an environment without the extra `suite` loads questions and prompts."""
    script = (
        "import sys; sys.modules |= dict.fromkeys(('hydra', 'omegaconf', 'pylatexenc', 'scipy')); "
        "from pods import tasks; print(len(tasks.load('arithmetic', 'train')))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert result.stdout == "400\n"
