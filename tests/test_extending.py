"""Every example of docs/extending.md, written to files and run as it stands."""

import re
import shlex
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pods import files
from tests import processes
from tests.conftest import ROOT

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
HOT = ["sampling.max_completion_length=24", "sampling.temperature=2"]
PAGE = (ROOT / "docs" / "extending.md").read_text()
PARTS = re.split(r"^## (.+)$", PAGE, flags=re.M)[1:]
# heading -> (language, text) of its code blocks
SECTIONS = {name: BLOCK.findall(text) for name, text in zip(PARTS[::2], PARTS[1::2], strict=True)}
FILES = {text.split()[1]: text for language, text in BLOCK.findall(PAGE) if language == "python"}


def name_of(heading: str) -> str:
    return "test_" + re.sub(r"\W+", "_", heading.lower())


@pytest.fixture
def run(request, tmp_path):
    """The run of the section's command, in a folder with all files of the page."""
    texts = next(dict(SECTIONS[name]) for name in SECTIONS if name_of(name) == request.node.name)
    for name, text in (FILES | {"countdown.jsonl": texts.get("json", "")}).items():
        (tmp_path / name).write_text(text)
    command = shlex.split(texts["bash"].replace("\\\n", " "))
    assert command[:3] == ["uv", "run", "train.py"]
    keys = [key for key in command[3:] if not key.startswith("run=")]
    processes.run(tmp_path, *processes.SMALL, *HOT, *keys)
    return tmp_path / "checkpoints" / "r"


def steps(folder: Path) -> list[list[dict[str, Any]]]:
    """The ledger's records of every step, one for each prompt."""
    records = files.read_lines(folder / "rollouts.jsonl.gz")
    return [list(group) for _, group in groupby(records, key=lambda record: record["step"])]


def test_every_section_has_a_test():
    assert {*map(name_of, SECTIONS)} <= globals().keys()


def test_an_algorithm_with_two_rounds(run):
    for records in steps(run):
        counts = [len(record["total"]) for record in records]
        assert min(counts) >= 6  # algorithm_kwargs.first
        assert sum(counts) in (15, 16)  # P n, the second round rounded down
        assert [len(record["kept"]) for record in records] == [4, 4]
    assert [line["generate/rounds"] for line in files.read_lines(run / "metrics.jsonl")] == [2, 2]


def test_an_algorithm_with_history(run):
    first, second = steps(run)
    overall = np.mean([record["total"] for record in first])
    assert {r["question_id"] for r in first}.isdisjoint(r["question_id"] for r in second)
    for record in (*first, *second):  # first visits: less the mean of what was seen so far
        assert record["kept"] == [0, 1, 2, 3]
        by_hand = np.array(record["total"]) - overall
        assert record["advantages"] == pytest.approx(by_hand.tolist(), abs=1e-5)


def test_a_rule(run):
    for record in chain(*steps(run)):
        order = np.argsort(record["total"], kind="stable")
        assert record["kept"] == sorted([*order[:3], order[7]])  # rule_kwargs.high=0.25


def test_an_advantage(run):
    for record in chain(*steps(run)):
        total = np.array(record["total"])
        by_hand = (total - total.mean()) / (total.std(ddof=1) + 1e-4)
        expected = by_hand[record["kept"]].tolist()
        assert record["advantages"] == pytest.approx(expected, abs=1e-4)


def test_a_reward_and_a_data_set_countdown(run):
    records = [*chain(*steps(run))]
    assert {record["answer"] for record in records} <= {"15", "2", "8", "4", "9"}
    assert all(set(record["rewards"]) >= {"countdown", "brevity"} for record in records)
    assert any(any(record["rewards"]["brevity"]) for record in records)
    namespace: dict = {}
    exec(FILES["my_rewards.py"], namespace)
    texts = ["<answer>7+3+5</answer>", "<answer>15</answer>", "<answer>7+7+1</answer>", "7+3+5"]
    grades = namespace["countdown"](texts, [15] * 4, [[7, 3, 5]] * 4)
    assert grades == [1, 0, 0, 0]


def test_an_engine(run):
    lines = files.read_lines(run / "metrics.jsonl")
    assert max(line["engine/logprob_gap"] for line in lines) < 1e-3
    assert lines[0]["engine/probe_gap_without_adapter"] > 0.01


def test_podstrainer_in_an_unsloth_notebook():
    """The order of imports; tests/filled_steps.py trains like this inside Unsloth's classes."""
    lines = FILES["my_notebook.py"].splitlines()
    compile("\n".join(lines), "my_notebook.py", "exec")
    imports = [line.split()[1] for line in lines if line.startswith("from ")]
    assert imports == ["unsloth", "pods", "my_rewards", "datasets"]
