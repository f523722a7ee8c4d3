"""Where the suite's files are: config/, train.py, evaluate_run.py and scripts/ of a clone, which a
wheel holds in pods/suite/. Imports nothing of ours, so that every other file may import this."""

import os
import re
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (PACKAGE / "suite").is_dir()  # from a wheel; without a clone
SUITE = PACKAGE / "suite" if INSTALLED else PACKAGE.parent
CONFIG_DIR = SUITE / "config"
WORLDS = "benchmarks/worlds"  # of a clone: experiments of the board that a wheel does not hold
COMMANDS = {
    "train": "train.py",
    "evaluate": "evaluate_run.py",
    "plot": "scripts/plot.py",
    "table": "scripts/table.py",
    "best": "scripts/best.py",
    "speedup": "scripts/speedup.py",
    "report": "scripts/report.py",
    "chat": "scripts/chat.py",
    "export": "scripts/export.py",
    "inspect": "scripts/inspect_run.py",
    "import_published": "scripts/import_published.py",
}
RUNS = "runs.txt"  # in the folder of a sweep: the name of a run in each line
NAMES = {Path(file).name: name for name, file in COMMANDS.items()}


def user_cache() -> Path:
    """The folder of what is made once for all runs; anything in it may be removed."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pods"


def as_typed(text: str) -> str:
    """A text with the commands as a user types them: `uv run train.py` is `pods train` without a
    clone."""
    if not INSTALLED:
        return text
    files = "|".join(map(re.escape, NAMES))
    return re.sub(f"(?:uv run )?(?:scripts/)?({files})", lambda m: f"pods {NAMES[m[1]]}", text)


def runs_of(sweep: Path) -> list[str]:
    """The runs of a sweep, by its folder; none if it is no folder of a sweep."""
    with suppress(OSError):
        return (sweep / RUNS).read_text().splitlines()
    return []
