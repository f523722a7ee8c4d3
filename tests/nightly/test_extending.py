"""Every example of docs/extending.md, written to files and run as it stands."""

import re
import runpy
import shlex
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pods import files
from tests import processes
from tests.conftest import ROOT

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
HOT = ["sampling.max_completion_length=24", "sampling.temperature=2"]
PAGE = (ROOT / "docs" / "extending.md").read_text()
PARTS = re.split(r"^## (.+)$", PAGE, flags=re.M)[1:]
# heading -> (language, text) of its code blocks
SECTIONS = {name: BLOCK.findall(text) for name, text in zip(PARTS[::2], PARTS[1::2], strict=True)}
NAME = re.compile(r"^# (\S+\.\w+)$", re.MULTILINE)
FILES = {name[1]: text for _, text in BLOCK.findall(PAGE) if (name := NAME.search(text))}


def name_of(heading: str) -> str:
    return "test_" + re.sub(r"\W+", "_", heading.lower())


@pytest.fixture
def run(request, tmp_path):
    """The run of the section's command, in a folder with all files of the page."""
    texts = next(dict(SECTIONS[name]) for name in SECTIONS if name_of(name) == request.node.name)
    for name, text in (FILES | {"countdown.jsonl": texts.get("json", "")}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = shlex.split(texts["bash"].replace("\\\n", " "))
    assert command[:3] == ["uv", "run", "train.py"]
    keys = [key for key in command[3:] if not key.startswith("run=")]
    processes.run(tmp_path, *processes.SMALL, *HOT, *keys)
    return tmp_path / "checkpoints" / "r"


def steps(folder: Path) -> list[list[dict[str, Any]]]:
    """The rollout log's records of every step, one for each prompt."""
    records = files.read_lines(folder / "rollouts.jsonl.gz")
    return [list(group) for _, group in groupby(records, key=lambda record: record["step"])]


def test_every_section_has_a_test():
    assert {*map(name_of, SECTIONS)} <= globals().keys()


def test_an_algorithm_with_two_rounds(run):
    sampled = [[len(record["total"]) for record in records] for records in steps(run)]
    assert min(map(min, sampled)) >= 6  # algorithm_kwargs.first
    assert {*map(sum, sampled)} <= {15, 16}  # P n, the second round rounded down
    assert [len(record["kept"]) for record in chain(*steps(run))] == [4] * 4
    assert [line["generate/rounds"] for line in files.read_lines(run / "metrics.jsonl")] == [2, 2]


def test_the_example_of_a_test_passes(tmp_path, monkeypatch):
    for name in ("my_rounds.py", "test_my_rounds.py"):
        (tmp_path / name).write_text(FILES[name])
    monkeypatch.syspath_prepend(tmp_path)
    example = runpy.run_path(str(tmp_path / "test_my_rounds.py"))
    example["test_further_rollouts_go_to_the_prompt_that_varies"]()


def test_an_algorithm_with_history(run):
    first, second = steps(run)
    overall = np.mean([record["total"] for record in first])
    assert {r["question_id"] for r in first}.isdisjoint(r["question_id"] for r in second)
    records = [*first, *second]
    assert [record["kept"] for record in records] == [[0, 1, 2, 3]] * len(records)
    # First visits: less the mean of what was seen so far.
    by_hand = [np.array(record["total"]) - overall for record in records]
    np.testing.assert_allclose([r["advantages"] for r in records], by_hand, rtol=1e-6, atol=1e-5)


def test_a_rule(run):
    records = [*chain(*steps(run))]
    orders = [np.argsort(record["total"], kind="stable") for record in records]
    by_hand = [sorted([*order[:3], order[7]]) for order in orders]  # rule_kwargs.high=0.25
    assert [record["kept"] for record in records] == by_hand


def test_an_advantage(run):
    records, by_hand = [*chain(*steps(run))], []
    for record in records:
        total = np.array(record["total"])
        normalised = (total - total.mean()) / (total.std(ddof=1) + 1e-4)
        by_hand.append(normalised[record["kept"]])
    np.testing.assert_allclose([r["advantages"] for r in records], by_hand, rtol=1e-6, atol=1e-4)


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


def test_an_experiment_in_a_folder_of_yours(run):
    keys = yaml.safe_load((run / ".hydra" / "config.yaml").read_text())
    assert (keys["experiment"], keys["optimizer"]["learning_rate"]) == ("mine", 1e-3)
    command = next(re.finditer(r"`uv run (evaluate_run.py) (--config-dir .+?)`", PAGE))
    keys = [*command[2].split(), "questions=2", "repeats=1", "max_tokens=4"]
    evaluation = processes.Process(run.parents[1], *keys, script=command[1])
    assert evaluation.end() == 0, evaluation.stderr
    assert (run.parents[1] / "results" / "base-tiny.json").is_file()


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
