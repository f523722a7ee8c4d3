"""What a user can turn: the keys of each command, and names of built-in functions and choices.

    uv run python -m tests.switches

One in, one out: tests grow with the products of switches.
"""

import inspect
import runpy
from typing import Literal, get_args, get_origin

from pods.advantages import ADVANTAGES
from pods.algorithms import ALGORITHMS
from pods.config.keys import LossKeys, RewardsKeys, Section, TrainConfig, keys
from pods.config.paths import COMMANDS, SUITE
from pods.rules import RULES
from pods.tasks.splits import TASKS
from tests.conftest import ROOT


def keys_of(script: str) -> int:
    """Keys of a command, without the groups that they are in."""
    names = inspect.getclosurevars(runpy.run_path(script)["main"]).nonlocals
    every = keys(names["definition"].schema)
    return sum(not any(name.startswith(f"{key}.") for name in every) for key in every)


def choices(schema: type[Section], key: str) -> int:
    """The names of a key that is a Literal, or a Literal or a path."""
    kind = schema.model_fields[key].annotation
    literals = [kind] if get_origin(kind) is Literal else get_args(kind)
    return sum(len(get_args(part)) for part in literals if get_origin(part) is Literal)


def main() -> None:
    scripts = {name: str(SUITE / script) for name, script in COMMANDS.items()}
    counts = {f"keys of {name}": keys_of(script) for name, script in scripts.items()}
    counts["keys of board"] = keys_of(str(ROOT / "benchmarks" / "board.py"))
    counts |= {
        "algorithms": len(ALGORITHMS),
        "rules": len(RULES),
        "advantages": len(ADVANTAGES),
        "losses": choices(LossKeys, "type"),
        "graders": choices(RewardsKeys, "version"),
        "engines": choices(TrainConfig, "engine"),
        "tasks": len(TASKS),
    }
    for name, count in counts.items():
        print(f"{count:4} {name}")
    print(f"{sum(counts.values()):4} in all")


if __name__ == "__main__":
    main()
