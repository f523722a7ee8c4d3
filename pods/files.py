"""Files that matter: a reader sees the old one or the new one, never half of one; and files of
JSON lines, to which a run appends, so that a kill tears only the last one."""

import fcntl
import json
import os
import shutil
import socket
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, BinaryIO

BLOCK = 2**14  # bytes that are read at once
MEMBER = 2**28  # bytes of an unpacked gzip member: a stranger's 10 MB could unpack to 10 GB
UNREADABLE = b"cannot be unpacked"
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
def new_folder(out: Path) -> Iterator[Path]:
    """A folder that is filled in this block under a temporary name, then becomes `out`. What a
    killed process left is removed after a day. Raises OSError, also for a full disk."""
    from safetensors import SafetensorError

    out.parent.mkdir(parents=True, exist_ok=True)
    remove_old(out.parent, ".new-*")
    with TemporaryDirectory(prefix=".new-", dir=out.parent) as temporary:
        folder = Path(temporary) / out.name
        folder.mkdir()
        try:
            yield folder
        except SafetensorError as error:
            raise OSError(f"{out}: {error}") from error
        folder.rename(out)


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


def place_aside(path: Path) -> Path:
    """A free name for `path` in set-aside/, beside it, which nothing reads; the folder is made."""
    folder = path.parent / "set-aside"
    folder.mkdir(exist_ok=True)
    names = (folder / f"{path.name}.{number}" for number in count())
    return next(name for name in names if not name.exists())


def sync_folder(path: Path) -> None:
    """Flush a folder's own entries, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(path: Path, record: JsonObject) -> None:
    """Add a line of JSON to a file, and wait until it is on the disk. A line that a kill has torn
    is ended first, so that it does not spoil the new one. Raises OSError."""
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
        os.fsync(file.fileno())  # a rank on another machine reads it over NFS
        yield file
        file.truncate(0)


def parts(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """The parts of a file that were appended at once, a line, or in a .gz a member of lines, and
    where they begin; None for a torn end, UNREADABLE for what cannot be unpacked. Yields nothing if
    there is no file."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        if path.suffix == ".gz":
            yield from members(file)
            return
        start = 0
        for line in file:
            yield start, line if line.endswith(b"\n") else None
            start += len(line)


def members(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """As `parts`; nothing is read behind a member that cannot be unpacked."""
    start = 0
    while block := file.read(BLOCK):
        member = zlib.decompressobj(wbits=31)
        lines, room = [], MEMBER
        try:
            while block and room and not member.eof:
                lines.append(member.decompress(block, room))
                room -= len(lines[-1])
                block = b"" if member.eof else file.read(BLOCK)
        except zlib.error:
            room = 0
        if not member.eof:
            yield start, None if room else UNREADABLE
            return
        yield start, b"".join(lines)
        start = file.seek(-len(member.unused_data), os.SEEK_CUR)


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
    """The JSON objects of a file of lines, compressed or not, up to a torn end. What cannot
    be read is left out, and a line on stderr says where it begins. Yields nothing if there is no
    file."""
    broken: list[int] = []
    for start, lines in parts(path):
        if lines is UNREADABLE:
            print(f"{path}: cannot be read from byte {start} on; left out", file=sys.stderr)
            break
        records = records_of(lines or b"")
        if records is None:
            broken.append(start)
        yield from records or ()
    if broken:
        print(f"{path}: cannot be read at byte {few(broken)}; left out", file=sys.stderr)


def forget_after(path: Path, step: int) -> None:
    """Cut a file before its first record after `step`, and before a torn end: a resumed run writes
    them again. What cannot be unpacked, and all behind it, is copied to set-aside/ first."""
    for start, lines in parts(path):
        records = records_of(lines or b"") or ()
        later = any(record.get("step", step) > step for record in records)
        if later or lines in (None, UNREADABLE):
            with open(path, "r+b") as file:
                if lines is UNREADABLE:
                    target = place_aside(path)
                    file.seek(start)
                    with replacing(target) as copy:
                        shutil.copyfileobj(file, copy)
                    print(
                        f"{path}: cannot be read from byte {start} on; moved to {target}",
                        file=sys.stderr,
                    )
                file.truncate(start)
                os.fsync(file.fileno())
            return


def few(items: Iterable[str | float]) -> str:
    """The first eight items, and the number of the others."""
    texts = [f"{item:g}" if isinstance(item, float) else str(item) for item in items]
    text = ", ".join(texts[:8])
    return text if len(texts) <= 8 else f"{text} and {len(texts) - 8} more"
