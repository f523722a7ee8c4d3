"""Files that matter reach the disk before their name does: the order of fsync and rename."""

import os
from typing import Any, NamedTuple

import pytest

from pods.files import write_atomic


class Call(NamedTuple):
    """A system call: the file's number survives its rename, and its size shows what was flushed."""

    name: str  # fsync | rename
    inode: int
    size: int


def of(name: str, file: Any) -> Call:
    """The call as it is recorded for a path or descriptor in its present state."""
    facts = os.stat(file)
    return Call(name, facts.st_ino, facts.st_size)


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
    path, calls = tmp_path / "new" / "file.json", record(monkeypatch)
    write_atomic(path, content)
    assert calls == [of("fsync", path), of("rename", path)]
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    assert path.read_bytes() == data
    assert [file.name for file in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, failing):
    def fail(*_: object) -> None:
        raise OSError("no space left")

    path = tmp_path / "file.json"
    path.write_text("old")
    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="no space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file.json"]
