"""Files that matter: a reader sees the old one or the new one, never half of one."""

import os
from pathlib import Path


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
