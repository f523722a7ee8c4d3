"""What --help prints: the YAML files of a command, with their comments."""

import re
from pathlib import Path
from textwrap import indent


def help_text(title: str, file: Path) -> str:
    """What --help prints: the command's YAML with its comments, then each of its groups."""
    text = file.read_text()
    parts = [title, text]
    for name in re.findall(r"(?m)^  - (_(?!self_)\w+)", text):
        parts.append(file.with_name(f"{name}.yaml").read_text())
    for group, default in re.findall(r"(?m)^  - (\w+): (\S+)", text):
        parts += group_help(file.parent / group, default)
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def group_help(folder: Path, default: str) -> list[str]:
    """The choices of a group, and the keys of its default with their comments."""
    names = sorted(path.stem for path in folder.glob("[!_]*.yaml"))
    parts = [f"{folder.name}={default}, any of {', '.join(names)}"]
    file = folder / "_shared.yaml"
    if not file.is_file():
        file = folder / f"{default}.yaml"
    if file.is_file() and "@package _global_" not in file.read_text():
        parts.append(indent(file.read_text(), "  "))
    return parts
