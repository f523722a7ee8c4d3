"""scripts/regrade.py on each kind of stored completions, run as a user would."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
ROWS = [
    {
        "answer": "18",
        "completion": "<think>a</think><answer>18 dollars</answer>",
    },  # all agree
    {"answer": "18", "completion": "It is 18"},
    {"answer": "18", "completion": "<answer>17</answer>"},
    {"answer": "0.5", "completion": "<answer>2/4</answer>"},
]


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Path]:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    paths = {
        "jsonl": tmp_path / "sample.jsonl",
        "folder": tmp_path / "run",
        "published": tmp_path / "run.json",
    }
    paths["jsonl"].write_text(lines)
    for repeat in (0, 1):
        file = paths["folder"] / "checkpoint-10" / "gsm8k" / f"repeat-{repeat}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines)
    entry = {"ans_acc": [0.5], "examples": ROWS}
    paths["published"].write_text(json.dumps({"checkpoint-10": {"gsm8k": entry, "meta": {}}}))
    return paths


@pytest.mark.parametrize(("kind", "rows"), [("jsonl", 4), ("folder", 8), ("published", 4)])
def test_accuracy_agreement_and_disagreements(
    kind: str, rows: int, stored: dict[str, Path], run_command: Run
) -> None:
    done = run_command("scripts/regrade.py", f"results={stored[kind]}", "versions=[v1,strict]")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["all", str(rows), "50.00", "50.00"] in lines
    assert ["v1", "/", "strict", "50.00", str(rows // 4), str(rows // 4)] in lines
    assert f"{rows // 2} disagreements, 2 different" in done.stdout
    assert "v1 right strict wrong  gold '18'  answer 'It is 18 (no closed <answer>)'" in done.stdout
    assert "v1 wrong strict right  gold '0.5'  answer '2/4'" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["results=absent.json"], "results=absent.json: cannot be read (FileNotFoundError"),
        (["results=empty.jsonl"], "results=empty.jsonl: holds no completions"),
        (["results=other.jsonl"], "results=other.jsonl: cannot be read (KeyError"),
        (["results=x", "versions=[v2]"], "versions=['v2']: give two or more of v1, "),
        (["results=x", "show=-1"], "show=-1: must not be negative"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, run_command: Run, tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "other.jsonl").write_text('{"text": "5"}\n')
    done = run_command("scripts/regrade.py", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
