"""Every example of docs/extending.md, written to files and run as it stands."""

import json
import re
import shlex
from pathlib import Path

import pytest

from pods.runs import ledger
from pods.runs.folder import read_metrics
from tests import processes
from tests.conftest import ROOT

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
LONGEST = 40  # lines of an example, the first one being its name
SMALL = [
    "prompts_per_step=2",
    "rollouts_per_prompt=8", "kept_per_prompt=4", "micro_batch_size=2", "run=r",
    "sampling.max_completion_length=24", "checkpoint.every_seconds=null", "ledger.texts=all",
]  # fmt: skip


def sections() -> dict[str, list[tuple[str, str]]]:
    """Heading -> (language, text) of its code blocks."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs" / "extending.md").read_text(), flags=re.M)[1:]
    return {name: BLOCK.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.fixture
def run(tmp_path: Path):
    def start(heading: str, *overrides: str) -> Path:
        command = []
        for language, text in sections()[heading]:
            if language == "python":
                name = text.splitlines()[0].removeprefix("# ")
                (tmp_path / name).write_text(text)
                assert len(text.splitlines()) - 1 <= LONGEST
            elif language == "json":
                (tmp_path / "countdown.jsonl").write_text(text)
            else:
                command = shlex.split(text.replace("\\\n", " "))
        assert command[:3] == ["uv", "run", "train.py"]
        keys = [key for key in command[3:] if not key.startswith("run=")]
        done = processes.run(tmp_path, *SMALL, *keys, *overrides)
        assert done.returncode == 0, done.stderr
        return tmp_path / "checkpoints" / "r"

    return start


def test_every_section_is_run_here():
    assert list(sections()) == [
        "A rule that sees lengths", "A rule with history", "Advantages from all n",
        "A choice of prompts",
        "A task with its own reward: Countdown", "An engine",
    ]  # fmt: skip


def test_a_rule_that_sees_lengths(run):
    folder = run("A rule that sees lengths")
    for batch, kept in ledger.steps(folder / "rollouts.jsonl.gz"):
        lengths = batch.lengths.reshape(-1)
        assert len(kept.kept) == 8
        if (lengths <= 0.9 * lengths.max()).sum() >= 8:  # rule.params.limit=0.9
            assert (lengths[kept.kept] <= 0.9 * lengths.max()).all()


def test_a_rule_with_history(run):
    folder = run("A rule with history")
    state = json.loads((folder / "checkpoint-3" / "rule_state.json").read_text())
    asked = {
        q for batch, _ in ledger.steps(folder / "rollouts.jsonl.gz") for q in batch.question_ids
    }
    assert set(state["means"]) == asked


def test_advantages_from_all_n(run):
    folder = run("Advantages from all n")
    for record in ledger.read(folder / "rollouts.jsonl.gz"):
        total = record["total"]
        mean = sum(total) / 8
        std = (sum((r - mean) ** 2 for r in total) / 7) ** 0.5
        by_hand = [(total[i] - mean) / (std + 1e-4) for i in record["kept"]]
        assert record["advantages"] == pytest.approx(by_hand, abs=1e-4)


def test_a_choice_of_prompts(run):
    folder = run("A choice of prompts", "model=tiny_60", "sampling.max_completion_length=48")
    latest: dict[str, float] = {}
    again = 0
    for batch, _ in ledger.steps(folder / "rollouts.jsonl.gz"):
        mixed = {name for name, right in latest.items() if 0 < right < 0.9}
        if len(mixed) >= 2:
            assert set(batch.question_ids) <= mixed
            again += 1
        right = (batch.by_function["correctness"] > 0).mean(axis=1)
        latest |= dict(zip(batch.question_ids, right, strict=True))
    assert again


def test_countdown(run):
    folder = run("A task with its own reward: Countdown")
    records = list(ledger.read(folder / "rollouts.jsonl.gz"))
    assert {record["answer"] for record in records} <= {"15", "2", "8"}
    assert all(set(record["rewards"]) >= {"countdown", "correctness"} for record in records)
    namespace: dict = {}
    exec((folder.parents[1] / "my_rewards.py").read_text(), namespace)
    texts = ["<answer>7+3+5</answer>", "<answer>15</answer>", "<answer>7+7+1</answer>", "7+3+5"]
    grades = namespace["countdown"](texts, [15] * 4, [[7, 3, 5]] * 4)
    assert grades == [1, 0, 0, 0]


def test_an_engine(run):
    lines = read_metrics(run("An engine") / "metrics.jsonl")
    assert max(line["engine/logprob_gap"] for line in lines) < 1e-3
    assert lines[0]["engine/probe_gap_without_adapter"] > 0.01
