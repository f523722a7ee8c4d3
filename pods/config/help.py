"""What --help prints: the YAML files of a command, with their comments."""

import re
from pathlib import Path
from textwrap import indent


def help_text(title: str, folder: Path, name: str) -> str:
    """What --help prints: the command's YAML with its comments, then of each of its groups the
    choices, and the keys of the default."""
    text = (folder / f"{name}.yaml").read_text()
    included = re.findall(r"(?m)^  - (?!_self_)(\w+)\b(?!:)", text)
    groups = re.findall(r"(?m)^  - (\w+): (\S+)", text)
    parts = [title, text]
    for file in included:
        if (folder / f"{file}.yaml").is_file():  # else it is a node of pods/config/command.py
            parts.append((folder / f"{file}.yaml").read_text())
    for group, default in groups:
        choices = sorted(path.stem for path in (folder / group).glob("[!_]*.yaml"))
        parts.append(f"{group}={default}, any of {', '.join(choices)}")
        file = folder / group / f"{default}.yaml"
        if file.is_file() and "@package _global_" not in file.read_text():
            parts.append(indent(file.read_text(), "  "))
    whole = [part.strip("\n") for part in parts if part.strip()]
    return "\n\n".join(whole)
