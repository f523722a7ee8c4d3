"""Files that matter: a reader sees the old one or the new one, never half of one; and files of
JSON lines, to which a run appends, so that a kill tears only the last one."""

import fcntl
import gzip
import json
import os
import re
import shutil
import socket
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO

# How a member of gzip.compress begins, and its length.
HEAD = re.compile(rb"\x1f\x8b\x08\x00.{4}[\x00\x02\x04]\xff", re.DOTALL)
HEAD_BYTES = 10
MOST_BYTES = 2**27  # of a member's text: a step of 4,096 rollouts of 1,024 tokens has some 2**24
DAY = 86_400.0  # s
JsonObject = dict[str, Any]  # a record in a file, or all that a file holds


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write under a temporary name beside `path`, flush to the disk, rename. Raises OSError."""
    with replacing(path) as file:
        file.write(
            content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        )


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file under a temporary name beside `path`; at the end of the block it is flushed to the
    disk and renamed, or, after an error, removed. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_old(path.parent, f".{path.name}.*.tmp")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with named_errors(path), open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # only there when the write or the rename failed


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """An error of a write in this block names `path`: a full disk names no file."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def write_through(file: BinaryIO, data: bytes) -> None:
    """Write, and wait until it is on the disk."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def remove_old(folder: Path, pattern: str, seconds: float = DAY) -> None:
    """Remove what a killed process left under a temporary name so many seconds ago or earlier."""
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):  # another process has renamed it
            if time.time() - path.stat().st_mtime >= seconds:
                remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def sync_folder(path: Path) -> None:
    """Flush a folder's own entries, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def aside(path: Path) -> Path:
    """An unused path in set-aside/ beside a file or folder; nothing reads that folder."""
    folder = path.parent / "set-aside"
    folder.mkdir(exist_ok=True)
    names = (folder / f"{path.name}.{number}" for number in count())
    return next(name for name in names if not name.exists())


def append(path: Path, record: JsonObject) -> None:
    """Add a line of JSON to a file, and wait until it is on the disk. What a kill left of a line
    gets an end first: it cannot be read, but spoils no other. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with named_errors(path), open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # what another process has half written is not torn
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        end = b"" if file.read(1) in (b"", b"\n") else b"\n"
        write_through(file, end + json.dumps(record).encode() + b"\n")


class Held(Exception):
    """Another process has a lock; the text names it."""


@contextmanager
def lock(path: Path, wait: bool = False) -> Iterator[IO[str]]:
    """Hold the lock of a file, which is freed by the kernel on a kill. Raises OSError, and Held if
    another process has it, unless this one is to wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = path.read_text() or "another process"
            if not wait:
                raise Held(owner) from None
            print(f"{path.parent}: waits for {owner}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        print(f"pid {os.getpid()} on {socket.gethostname()}", end="", file=file, flush=True)
        yield file
        file.truncate(0)


@dataclass(frozen=True)
class Chunk:
    """What was appended to a file at once: a line, or in a .gz a member of lines."""

    location: str
    content: bytes
    records: list[JsonObject] | None  # None: it cannot be read


def chunks(path: Path) -> Iterator[Chunk]:
    """The parts of a file without a torn end; of no file none. One that cannot be read hides no
    later one."""
    if not path.is_file():
        return
    with open(path, "rb") as file:
        if path.suffix == ".gz":
            yield from members(file.read())
            return
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):  # only the last can be torn
                yield Chunk(f"line {number}", line, records_of(line))


def members(content: bytes) -> Iterator[Chunk]:
    """The gzip members of a file without a torn one at its end."""
    heads = {match.start() for match in HEAD.finditer(content)}
    for start, end in pairwise(sorted({0, *heads, len(content)})):
        rest = content[start:end]
        while len(rest) >= HEAD_BYTES:  # a shorter one is torn
            member = zlib.decompressobj(wbits=31)
            try:
                text = member.decompress(rest, MOST_BYTES)
            except zlib.error:
                text = None
            if text is None or (len(text) == MOST_BYTES and not member.eof):
                yield Chunk(f"byte {start}", rest, None)
                break
            if not member.eof and end == len(content):
                break
            records = records_of(text) if member.eof else None
            yield Chunk(f"byte {start}", rest[: len(rest) - len(member.unused_data)], records)
            rest = member.unused_data


def records_of(lines: bytes) -> list[JsonObject] | None:
    """The JSON objects of these lines; None if any line is none."""
    try:
        records = [json.loads(line.decode()) for line in lines.split(b"\n") if line]
    except (ValueError, RecursionError):
        return None
    return records if all(isinstance(record, dict) for record in records) else None


def read_lines(path: Path) -> list[JsonObject]:
    """All records of `stream_lines`."""
    return list(stream_lines(path))


def stream_lines(path: Path) -> Iterator[JsonObject]:
    """The JSON objects of a file of lines, compressed or not, up to a torn end; of no file none.
    What cannot be read is left out, and a line on stderr names it at the end."""
    broken: list[str] = []
    for chunk in chunks(path):
        if chunk.records is None:
            broken.append(chunk.location)
        yield from chunk.records or ()
    if broken:
        print(f"{path}: cannot be read at {few(broken)}; left out", file=sys.stderr)


def forget_after(path: Path, step: int, steps: Iterable[int] = ()) -> None:
    """Drop the records after `step`, and a torn end: a resumed run writes them again. A file that
    cannot be read inside is copied to set-aside/ first; lines on stderr name what is lost.

    steps: those that a whole file has records of.
    """
    lost = set(steps)
    if path.is_file():
        with replacing(path) as file:
            lost -= copy_early(path, step, file)
    if lost:
        print(f"{path}: has no record of step {few(sorted(lost))}", file=sys.stderr)


def copy_early(path: Path, step: int, file: BinaryIO) -> set[int]:
    """Write the records up to `step` of a file of lines to another, one part at a time; returns
    their steps. See forget_after."""
    steps: set[int] = set()
    broken: list[str] = []
    for chunk in chunks(path):
        records = chunk.records
        if records is None or not all(isinstance(record.get("step"), int) for record in records):
            broken.append(chunk.location)
            continue
        kept = [record for record in records if record["step"] <= step]
        steps |= {record["step"] for record in kept}
        content = chunk.content
        if kept != records:
            content = "".join(json.dumps(record) + "\n" for record in kept).encode()
            if path.suffix == ".gz":
                content = gzip.compress(content)
        file.write(content)
    if broken:
        copy = shutil.copy(path, aside(path))
        print(f"{path}: cannot be read at {few(broken)}; copied to {copy}", file=sys.stderr)
    return steps


def few(items: Iterable[str | float]) -> str:
    """The first eight items, and the number of the others."""
    texts = [f"{item:g}" if isinstance(item, float) else str(item) for item in items]
    text = ", ".join(texts[:8])
    return text if len(texts) <= 8 else f"{text} and {len(texts) - 8} more"
