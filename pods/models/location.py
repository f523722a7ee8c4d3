"""Where a model lies: a folder or the hub. Imports nothing heavy."""

from pathlib import Path

from pods.config.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def locate(path: str) -> str:
    """`model.path` as a local folder (also relative to the repository's root), else as a hub id."""
    for folder in (Path(path).expanduser(), ROOT / path):
        if folder.is_dir():
            return str(folder.resolve())  # PEFT notes it in the adapter, which is loaded anywhere
    if path.count("/") > 1 or path.startswith((".", "/", "~")):
        raise UserError(
            f"{path}: no such folder; give a folder or a hub id (org/name)", "model.path"
        )
    return path
