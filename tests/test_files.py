"""Files that matter reach the disk before their name does: the order of fsync and rename."""

import os
from pathlib import Path
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
    found = os.stat(file)
    return Call(name, found.st_ino, found.st_size)


def record(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Every fsync and rename of the test in order; the real calls are made."""
    made: list[Call] = []
    inner = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}

    def fsync(descriptor: int) -> None:
        inner["fsync"](descriptor)
        made.append(of("fsync", descriptor))

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("rename", "replace"):

        def rename(source: Any, target: Any, move: Any = inner[name]) -> None:
            made.append(of("rename", source))
            move(source, target)

        monkeypatch.setattr(os, name, rename)
    return made


@pytest.mark.parametrize("content", ["text é\udc80", b"bytes", "", "x" * 100_000])
def test_all_bytes_are_flushed_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | bytes
) -> None:
    path, calls = tmp_path / "new" / "file.json", record(monkeypatch)
    write_atomic(path, content)
    assert calls == [of("fsync", path), of("rename", path)]
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    assert path.read_bytes() == data
    assert [file.name for file in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    path = tmp_path / "file.json"
    path.write_text("old")
    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="no space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file.json"]
