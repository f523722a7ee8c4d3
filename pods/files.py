"""Files that matter: a reader sees the old one or the new one, never half of one; and files of
JSON lines, to which a run appends, so that a kill tears only the last one."""

import gzip
import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_atomic(path: Path | str, content: str | bytes) -> None:
    """Write under a temporary name beside `path`, flush to the disk, rename. Raises OSError."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # only there when the write or the rename failed


def sync_folder(path: Path | str) -> None:
    """Flush a folder's own entries, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file of lines, compressed or not, up to a torn end; of no file none."""
    open_text = gzip.open if path.suffix == ".gz" else open
    records: list[dict[str, Any]] = []
    with (
        suppress(FileNotFoundError, EOFError, zlib.error, gzip.BadGzipFile),
        open_text(path, "rt") as lines,
    ):
        for line in lines:
            if line.endswith("\n"):
                records.append(json.loads(line))
    return records


def forget_after(path: Path, step: int) -> None:
    """Drop the records after `step`, and a torn end: a resumed run writes them again."""
    if not path.is_file():
        return
    records = [record for record in read_lines(path) if record["step"] <= step]
    content = "".join(json.dumps(record) + "\n" for record in records).encode()
    write_atomic(path, gzip.compress(content) if path.suffix == ".gz" else content)
