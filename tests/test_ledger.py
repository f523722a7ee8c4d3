"""The ledger survives kills, forgets what a resume will repeat, and replays under other rules."""

import gzip
import re
from itertools import product
from pathlib import Path

import pytest

from pods import files
from pods.rules import RULES
from pods.runs import ledger
from tests.figures import in_process, ledger_file
from tests.steps import step_of
from tests.test_files import of, record


def write(path: Path, steps: int, texts: str = "first") -> Path:
    totals, kept = {"a": [0.0, 1.0, 0.5, 0.2], "b": [1.0] * 3, "c": [0.5]}, [0, 1, 5, 6, 7]
    for number in range(steps):
        ledger.append(path, step_of(totals, kept, ("<script>", "é\udc80"), number), texts)
    return path


def test_what_is_written_is_read(tmp_path):
    assert files.read_lines(tmp_path / "rollouts.jsonl.gz") == []  # as after a copy without it
    records = list(files.read_lines(write(tmp_path / "rollouts.jsonl.gz", 3)))
    assert [(r["step"], r["group"]) for r in records] == [*product((1, 2, 3), (0, 1, 2))]
    total = [0.0, 1.0, 0.5, 0.2]  # float32 with the digits it has
    assert records[0] == {
        "step": 1,
        "group": 0,
        "question_id": "a",
        "prompt": "a?",
        "answer": "1",
        "completions": ["<script>", "é\udc80"] * 2,  # hostile text stays text
        "lengths": [1, 2, 3, 4],
        "clipped": [False, False, False, True],
        "total": total,
        "rewards": {"correctness": total},
        "kept": [0, 1],
        "advantages": [-1.0, -0.5],
    }
    others = [(r["kept"], r["advantages"], r["total"]) for r in records[1:3]]
    assert others == [([1, 2], [0.0, 0.5], [1.0] * 3), ([0], [1.0], [0.5])]


@pytest.mark.parametrize(("texts", "with_text"), [("all", 3), ("first", 1), ("none", 0)])
def test_texts_are_kept_as_asked(tmp_path, texts, with_text):
    records = [*files.read_lines(write(tmp_path / "rollouts.jsonl.gz", 1, texts))]
    assert sum("prompt" in record for record in records) == with_text
    assert sum("completions" in record for record in records) == with_text


def test_a_torn_end_is_dropped_at_every_length(tmp_path):
    path = write(tmp_path / "rollouts.jsonl.gz", 2)
    whole, before = path.stat().st_size, list(files.read_lines(path))
    data = write(path, 1).read_bytes()
    every = list(files.read_lines(path))
    for cut in range(whole, len(data)):
        path.write_bytes(data[:cut])
        records = list(files.read_lines(path))
        assert before == records[:6]
        assert records == every[: len(records)]


def test_a_resume_forgets_later_steps_and_goes_on(tmp_path):
    path = write(tmp_path / "rollouts.jsonl.gz", 5)
    path.write_bytes(path.read_bytes() + gzip.compress(b'{"step": 6}\n')[:-9])
    files.forget_after(path, 2)
    ledger.append(path, step_of({"c": [0.0, 1.0]}, [0, 1], number=2), "none")
    assert [r["step"] for r in files.read_lines(path)] == [1, 1, 1, 2, 2, 2, 3]
    files.forget_after(tmp_path / "absent", 2)
    assert not (tmp_path / "absent").exists()


def test_a_step_is_flushed_and_later_ones_are_dropped_beside_the_old_file(tmp_path, monkeypatch):
    calls = record(monkeypatch)
    path = write(tmp_path / "rollouts.jsonl.gz", 1)
    assert calls.pop() == of("fsync", path)  # with every byte of it: the size is compared
    assert calls == []
    write(path, 12)
    calls.clear()
    files.forget_after(path, 10)  # a kill leaves all of them or none
    assert calls == [of("fsync", path), of("rename", path)]
    assert {r["step"] for r in files.read_lines(path)} == set(range(1, 11))


def replay(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list]:
    """The rows of the table of scripts/replay.py."""
    where = (f"output_dir={folder}/checkpoints", "run=r")
    assert in_process("scripts/replay.py", *where, *arguments) == 0
    rows = [re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()[2:]]
    return {row[0]: row[1:] for row in rows}


def test_replay_chooses_again_from_the_same_rewards(tmp_path, capsys):
    run = tmp_path / "checkpoints" / "r"
    run.mkdir(parents=True)
    record = {"step": 1, "kept": [0, 1], "total": [0.0, 1.0, 0.5, 0.2]}
    ledger_file(run, [record, record | {"total": [1.0] * 4}, record | {"kept": []}] * 4)
    rows = replay(tmp_path, capsys)
    assert set(rows) == {"the run", *RULES} - {"all"}, "n > m"
    # max_variance keeps 0 and 1, with a standard deviation of .5 and 0
    assert rows["max_variance"] == ["2.0000", "0.7500", "0.1250", "0.5000", "1.0000"]
    assert rows["the run"] == rows["max_variance"]
    # max_reward keeps 1 and 2, and of equal rewards the first two
    assert rows["max_reward"] == ["2.0000", "0.8750", "0.0312", "0.5000", "0.7500"]
    (tmp_path / "own.py").write_text("def last(rewards, m, rng): return range(4 - m, 4)\n")
    rows = replay(tmp_path, capsys, f"rule={tmp_path}/own.py:last", "kept_per_prompt=3")
    assert [row[0] for row in rows.values()] == ["2.0000", "3.0000"]
    assert next(reversed(rows.values()))[-1] == "0.3333", "1 of 1, 2 and 3"
