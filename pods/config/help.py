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
        files = (folder / group).glob("[!_]*.yaml")
        texts = {file.stem: file.read_text() for file in sorted(files, key=lambda file: file.stem)}
        choices = ", ".join(texts)
        parts.append(f"{group}={default}, any of {choices}")
        keys = texts.get(default, "@package _global_")
        if "@package _global_" not in keys:
            parts.append(indent(keys, "  "))
    whole = [part.strip("\n") for part in parts if part.strip()]
    return "\n\n".join(whole)
