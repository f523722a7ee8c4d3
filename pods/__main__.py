"""The console command of an installed package; in a clone it is the same as `uv run train.py`.

uvx --from <folder or URL of the repository> pods train experiment=quickstart
"""

import json
import os
import runpy
import subprocess
import sys
import sysconfig
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from pods.config.paths import COMMANDS, SUITE

USAGE = f"""pods <command> key=value ...
commands: {", ".join(COMMANDS)}
pods <command> --help lists the keys of one"""


def main() -> None:
    """Run the command that is named first; its keys follow, as in a clone."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(USAGE)
        return
    if name == "plan":
        _refuse("plan: was removed; docs/algorithms.md, Which sizes, says what to try first")
    if name not in COMMANDS:
        _refuse(f"{name}: no command; one of {', '.join(COMMANDS)}")
    if find_spec("hydra") is None:
        _run_with_suite()
    sys.argv = sys.argv[1:]
    runpy.run_path(str(SUITE / COMMANDS[name]), run_name="__main__")


def _run_with_suite() -> NoReturn:
    """The same command in an environment of uvx that has the packages of the extra `suite`: uvx
    installs only extras that are named. In any other environment it says what to install."""
    uv = os.environ.get("UV")  # set by uvx
    package = _requirement()
    if uv:
        cache = subprocess.check_output([uv, "cache", "dir"], text=True).strip()
        if Path(sys.prefix).is_relative_to(Path(cache).resolve()):
            version = sysconfig.get_python_version()  # such as 3.11
            words = ["tool", "run", "--python", version, "--from", package, "pods"]
            os.execv(uv, [uv, *words, *sys.argv[1:]])
    _refuse(f"the commands need packages that a TRL script does not; uv add '{package}'")


def _requirement() -> str:
    """This package with its extra `suite`, from where it was installed."""
    distribution = metadata.distribution("pods-rl")
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin:
        return f"pods-rl[suite]=={distribution.version}"
    commit = origin.get("vcs_info", {}).get("commit_id")
    place = f"git+{origin['url']}@{commit}" if commit else origin["url"]
    return f"pods-rl[suite] @ {place}"


def _refuse(problem: str) -> NoReturn:
    print(f"pods: {problem}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
