"""The pages of the site that are made from other files: README.md, and every config key.

A hook of mkdocs (mkdocs.yml), which calls the functions by their names.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config"
PICTURES = "benchmarks/results"


def on_files(files: Any, config: Any) -> Any:
    """Add index.md, the README, config.md and the pictures among the results."""
    readme = (ROOT / "README.md").read_text().replace("](docs/", "](")
    for name, content in {"index.md": readme, "config.md": config_page()}.items():
        files.append(File.generated(config, name, content=content))
    for picture in sorted((ROOT / PICTURES).glob("*.png")):
        files.append(File.generated(config, picture.name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Pictures among the results are shown, links to files that are no pages become their paths."""
    markdown = re.sub(rf"(!\[[^]]*\]\()\.\./{PICTURES}/", r"\1", markdown)
    return re.sub(
        r"\[([^]]*)\]\((?:\.\./)?((?:benchmarks|config|pods|tests)/[^)]*)\)", r"\1 (`\2`)", markdown
    )


def config_page() -> str:
    """Every YAML file of config/ as it is: its comments explain the keys."""
    parts = ["# Every config key", "`--help` of a command prints its part. A group's file is chosen"
             " by `<group>=<file>`, its keys are `<group>.<key>`.", "## Commands"]  # fmt: skip
    own = {"evaluate", "planning", "reproduce", "checkpoint"}  # folders of commands
    commands = sorted(CONFIG.glob("*.yaml"), key=lambda file: (file.stem != "train", file.name))
    commands += [f for g in sorted(own) for f in sorted((CONFIG / g).rglob("*.yaml"))]
    parts += [_block(file) for file in commands if not file.name.startswith("_")]
    for group in sorted(
        path for path in CONFIG.iterdir() if path.is_dir() and path.name not in own
    ):
        parts += [f"## {group.name}", *map(_block, sorted(group.glob("*.yaml")))]
    return "\n\n".join(parts)


def _block(file: Path) -> str:
    return f"### {file.relative_to(CONFIG)}\n\n```yaml\n{file.read_text().rstrip()}\n```"
