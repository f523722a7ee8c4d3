"""The rollout log survives kills, and forgets what a resume will repeat."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from pods import files
from pods.runs import rollout_log
from tests.steps import step_of
from tests.unit.test_files import of, record


def write(path: Path, steps: int, texts: str = "first") -> Path:
    totals, kept = {"a": [0.0, 1.0, 0.5, 0.2], "b": [1.0] * 3, "c": [0.5]}, [0, 1, 5, 6, 7]
    for number in range(steps):
        step = step_of(totals, kept, ("<script>", "é\udc80"), number)
        rollout_log.append(path, number + 1, step, texts)
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
        "correct": None,
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


def test_columns_of_log_extra_stand_beside_their_completions(tmp_path):
    step = step_of({"a": [0.0, 1.0], "b": [1.0] * 2}, [0, 1])
    extras = [{"answer": "7"}, {"answer": None, "words": 3}, {"words": np.float32(4)}, {}]
    rollout_log.append(tmp_path / "log.gz", 1, replace(step, extras=extras), "all")
    first, second = (record["log_extra"] for record in files.read_lines(tmp_path / "log.gz"))
    assert first == extras[:2]
    assert second == [{"words": "4.0"}, {}]  # what JSON has no form for is text


def test_a_torn_end_is_dropped_at_every_length(tmp_path):
    path = write(tmp_path / "rollouts.jsonl.gz", 2)
    whole, before = path.stat().st_size, list(files.read_lines(path))
    data = write(path, 1).read_bytes()
    every = list(files.read_lines(path))
    read = {}
    for cut in range(whole, len(data)):
        path.write_bytes(data[:cut])
        read[cut] = list(files.read_lines(path))
    assert [cut for cut, records in read.items() if records[:6] != before] == []
    assert [cut for cut, records in read.items() if records != every[: len(records)]] == []


def test_a_step_is_flushed_and_later_ones_are_dropped(tmp_path, monkeypatch):
    calls = record(monkeypatch)
    path = write(tmp_path / "rollouts.jsonl.gz", 1)
    assert calls == [of("fsync", path)]  # with every byte of it: the size is compared
    write(path, 12)
    files.forget_after(path, 10)
    assert {r["step"] for r in files.read_lines(path)} == set(range(1, 11))
