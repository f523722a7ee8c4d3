"""What --help prints: the YAML files of a command, with their comments."""

import re
from pathlib import Path
from textwrap import indent


def help_text(title: str, folder: Path, name: str) -> str:
    """What --help prints: the command's YAML with its comments, then of each of its groups the
    choices, and the keys of the default."""
    text = (folder / f"{name}.yaml").read_text()
    parts = [title, text]
    for group, default in re.findall(r"(?m)^  - (\w+)(?:: (\S+))?", text):
        file = folder / f"{group}.yaml"
        if default:
            choices = sorted(file.stem for file in (folder / group).glob("[!_]*.yaml"))
            parts.append(f"{group}={default}, any of {', '.join(choices)}")
            file = folder / group / f"{default}.yaml"
        # Others are no files: _self_, null, or a node of pods/config/command.py.
        if file.is_file() and "@package _global_" not in file.read_text():
            parts.append(indent(file.read_text(), "  " if default else ""))
    return "\n\n".join(part.strip("\n") for part in parts)
