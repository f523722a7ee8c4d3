"""Files that matter reach the disk before their name does: the order of fsync and rename. What is
appended to and broken inside keeps what can be read."""

import errno
import gzip
import json
import os
import socket
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from pods import files
from pods.files import Held, append, forget_after, lock, read_lines, stream_lines, write_atomic

Call = tuple[str, int, int]  # fsync or rename; the file's number, which a rename keeps; its size


def of(name: str, file: Any) -> Call:
    """The call as it is recorded for a path or descriptor in its present state."""
    return name, os.stat(file).st_ino, os.stat(file).st_size


def record(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Every fsync and rename of the test in order; the real calls are made."""
    calls: list[Call] = []
    real_fsync, real_rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        calls.append(of("fsync", descriptor))

    def rename(source: Any, target: Any) -> None:
        calls.append(of("rename", source))
        real_rename(source, target)

    for name, call in (("fsync", fsync), ("rename", rename), ("replace", rename)):
        monkeypatch.setattr(os, name, call)
    return calls


@pytest.mark.parametrize("content", ["text é\udc80", b"bytes", "", "x" * 100_000])
def test_all_bytes_are_flushed_before_the_rename(tmp_path, monkeypatch, content):
    path, calls = tmp_path / "new" / "folder" / "file.json", record(monkeypatch)
    write_atomic(path, content)
    assert calls == [of("fsync", path), of("rename", path)]
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    assert path.read_bytes() == data
    assert [file.name for file in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, failing):
    path = tmp_path / "file.json"
    path.write_text("old")
    monkeypatch.setattr(os, failing, Mock(side_effect=OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file.json"]


@pytest.mark.parametrize("write", [write_atomic, append])
def test_a_full_disk_names_the_file(tmp_path, monkeypatch, write):
    path = tmp_path / "file.jsonl"
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(OSError, match=r"No space left on device: .*file\.jsonl"):
        write(path, {"step": 1} if write is append else "new")


@pytest.mark.parametrize(("age", "stays"), [(3600.0, True), (2 * 86_400.0, False)])
def test_what_a_killed_process_left_a_day_ago_is_removed(tmp_path, age, stays):
    left = tmp_path / ".file.json.12345.tmp"
    left.write_text("half")
    os.utime(left, (time.time() - age,) * 2)
    write_atomic(tmp_path / "file.json", "whole")
    assert left.exists() is stays


def appended(path: Path, step: int) -> None:
    """A record of this step as a run appends it: a line, or a gzip member with two."""
    line = json.dumps({"step": step, "text": f"the text of step {step} " * 9}) + "\n"
    with path.open("ab") as file:
        file.write(gzip.compress(2 * line.encode()) if path.suffix == ".gz" else line.encode())


def steps_of(path: Path) -> list[int]:
    return sorted({record["step"] for record in read_lines(path)})


@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts.jsonl.gz"])
@pytest.mark.parametrize(
    "garbage",
    [b'{"step": 3, garb\n', bytes(100) + b"\n", b"\xff\n", b"[]\n", b"[" * 9999 + b"\n"],
    ids=["cut", "NUL bytes", "no UTF-8", "no object", "deep"],
)
def test_lines_that_cannot_be_read_cost_no_later_record(tmp_path, capsys, name, garbage):
    path = tmp_path / name
    for step in (1, 2):
        appended(path, step)
    start = path.stat().st_size
    with path.open("ab") as file:
        file.write(gzip.compress(garbage) if name.endswith("gz") else garbage)
    for step in (4, 5, 6):
        appended(path, step)
    forget_after(path, 5)
    assert steps_of(path) == [1, 2, 4, 5]
    assert capsys.readouterr().err == f"{path}: cannot be read at byte {start}; left out\n"


@pytest.mark.parametrize("member", [10, 100_000], ids=["small", "of many blocks"])
def test_nothing_is_read_behind_a_member_that_cannot_be_unpacked(tmp_path, capsys, member):
    path = tmp_path / "rollouts.jsonl.gz"
    starts = []
    for step in range(1, 6):
        starts.append(path.stat().st_size if path.exists() else 0)
        text = np.random.default_rng(step).bytes(member).hex()
        line = json.dumps({"step": step, "text": text}) + "\n"
        with path.open("ab") as file:
            file.write(gzip.compress(line.encode()))
    assert steps_of(path) == [1, 2, 3, 4, 5]
    content = bytearray(path.read_bytes())
    content[starts[2] : starts[2] + 40] = bytes(range(40))
    path.write_bytes(content)
    assert steps_of(path) == [1, 2]
    said = f"{path}: cannot be read from byte {starts[2]} on; "
    assert capsys.readouterr().err == f"{said}left out\n"
    forget_after(path, 4)
    aside = tmp_path / "set-aside" / f"{path.name}.0"
    assert capsys.readouterr().err == f"{said}moved to {aside}\n"
    assert path.read_bytes() + aside.read_bytes() == content  # no byte is lost
    appended(path, 3)
    assert steps_of(path) == [1, 2, 3]
    assert path.stat().st_size > starts[2]


def test_a_member_that_unpacks_to_more_than_the_bound_is_not_read(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rollouts.jsonl.gz"
    appended(path, 1)
    start = path.stat().st_size
    largest = b'{"step": 2}\n'.ljust(10_000, b"\n")
    path.write_bytes(path.read_bytes() + gzip.compress(largest))
    monkeypatch.setattr(files, "MEMBER", len(largest))
    assert steps_of(path) == [1, 2]
    monkeypatch.setattr(files, "MEMBER", len(largest) - 1)
    assert steps_of(path) == [1]
    said = f"{path}: cannot be read from byte {start} on; left out\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts.jsonl.gz"])
def test_a_cut_is_on_the_disk_and_changes_no_byte_before_it(tmp_path, monkeypatch, name):
    path = tmp_path / name
    for step in (1, 2, 3):
        appended(path, step)
    whole = path.read_bytes()
    appended(path, 4)
    calls = record(monkeypatch)
    forget_after(path, 3)
    assert path.read_bytes() == whole
    assert calls == [of("fsync", path)]
    path.write_bytes(whole + b"\x1f\x8b")  # torn
    forget_after(path, 3)
    assert path.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == [name]  # nothing is set aside
    forget_after(path, 3)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("before", [b"", b'{"step": 1}\n'], ids=["only line", "last line"])
@pytest.mark.parametrize(
    "torn", [b"", b'{"st', bytes(9), b"\xff"], ids=["whole", "cut", "NUL bytes", "no UTF-8"]
)
def test_a_torn_line_spoils_no_line_that_is_appended(tmp_path, capsys, before, torn):
    path = tmp_path / "folder" / "lines.jsonl"
    path.parent.mkdir()
    path.write_bytes(before + torn)
    for step in (2, 3):
        append(path, {"step": step})
    assert steps_of(path) == [1, 2, 3][not before :]
    said = f"{path}: cannot be read at byte {len(before)}; left out\n"
    assert capsys.readouterr().err == said * bool(torn)


def test_lines_of_several_processes_stay_whole(tmp_path):
    path = tmp_path / "lines.jsonl"
    text = "x" * 20_000  # more than a buffer
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda step: append(path, {"step": step, "text": text}), range(40)))
    assert sorted(line["step"] for line in read_lines(path)) == [*range(40)]


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    forget_after(tmp_path / "metrics.jsonl", 20)
    assert read_lines(tmp_path / "metrics.jsonl") == []
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("wait", [True, False])
def test_a_lock_is_held_by_one(tmp_path, capsys, wait):
    path = tmp_path / "folder" / ".lock"
    entered = []

    def enter() -> None:
        try:
            with lock(path, wait):
                entered.append("in")
        except Held as owner:
            entered.append(str(owner))

    owner = f"pid {os.getpid()} on {socket.gethostname()}"
    with lock(path):
        second = Thread(target=enter)
        second.start()
        if wait:
            while "waits for" not in capsys.readouterr().err:
                second.join(0.01)
            assert entered == []
        else:
            second.join()
    second.join()
    assert entered == ["in" if wait else owner]
    assert path.read_text() == ""


def test_the_first_line_makes_the_folders_of_its_file(tmp_path):
    path = tmp_path / "a" / "b" / "lines.jsonl"
    append(path, {"step": 1})
    assert path.read_text() == '{"step": 1}\n'


def test_lines_are_read_one_at_a_time(tmp_path):
    """A run of 100,000 steps has 120 MB of metrics, which a resume and a report read."""
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": i, "text": "x" * 999}) + "\n" for i in range(1000)))
    tracemalloc.start()
    forget_after(path, 500)
    assert [record["step"] for record in stream_lines(path)] == [*range(501)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 2
