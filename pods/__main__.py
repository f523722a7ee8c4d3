"""The console command of an installed package; in a clone it is the same as `uv run train.py`.

uvx --from "pods-rl[suite] @ git+<URL of the repository>" pods train experiment=quickstart
"""

import runpy
import sys
from importlib.util import find_spec
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
        _refuse("the commands need the extra `suite`: pods-rl[suite] (docs/versions.md)")
    sys.argv = sys.argv[1:]
    runpy.run_path(str(SUITE / COMMANDS[name]), run_name="__main__")


def _refuse(problem: str) -> NoReturn:
    print(f"pods: {problem}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
