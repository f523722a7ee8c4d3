"""Faults put into the code one at a time: how many of them do the tests notice?

    uv run --group mutation benchmarks/mutation.py --sample 400 --seed 0 --write

mutmut (settings: pyproject.toml) copies the tree to mutants/, beside which no ../shared exists,
runs the tests once to learn which of them enter each function, and then those tests against each
mutant, up to the first failure. A survivor is a missing test, code to delete, or equivalent: the
reason then stands in equivalent_mutants.yaml, by file and changed line. An equivalent mutant counts
as a survivor in the share that was killed. Delete mutants/ to begin anew.
"""

import argparse
import os
import random
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

import yaml
from mutmut.__main__ import create_mutants
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files

from pods.files import write_atomic

HERE = Path(__file__).resolve().parent
KILLED = ("killed", "timeout", "segfault")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=400, help="mutants, of all modules")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write results/mutation.md")
    options = parser.parse_args()
    os.chdir(HERE.parent)  # mutmut works in the current folder
    create_mutants(1)
    names = sorted(outcomes())
    chosen = sorted(random.Random(options.seed).sample(names, min(options.sample, len(names))))
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", "1", *chosen]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = outcomes()
    text = report({name: found[name] for name in chosen}, f"seed {options.seed} of {len(names)}")
    print(text)
    if options.write:
        write_atomic(HERE / "results" / "mutation.md", text)


def outcomes() -> dict[str, tuple[Path, str]]:
    """Every mutant: its file, and what became of it."""
    found = {}
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for name, code in data.exit_code_by_key.items():
            found[name] = path, status_by_exit_code[code]
    return found


def report(chosen: dict[str, tuple[Path, str]], origin: str) -> str:
    """Killed and survived by file, then each survivor's diff with the reason to leave it."""
    reasons = yaml.safe_load((HERE / "equivalent_mutants.yaml").read_text())
    counts: dict[Path, Counter[str]] = {}
    survivors = []
    for name, (path, outcome) in chosen.items():
        if outcome not in KILLED:
            diff = get_diff_for_mutant(name, path=path)
            lines = [line[1:].strip() for line in diff.splitlines() if line.startswith("+ ")]
            reason = next((reasons.get(str(path), {}).get(line) for line in lines), None)
            outcome = "equivalent" if reason else outcome
            survivors.append(f"\n`{name}`: {reason or outcome}\n\n```diff\n{diff.strip()}\n```\n")
        counts.setdefault(path, Counter())["killed" if outcome in KILLED else outcome] += 1
    total = sum(counts.values(), Counter())
    columns = ("killed", "survived", "no tests", "equivalent")
    rows = [*sorted((str(path), count) for path, count in counts.items()), ("all", total)]
    lines = [f"| file | {' | '.join(columns)} |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(str(c[key]) for key in columns)} |" for name, c in rows]
    share = total["killed"] / total.total()
    head = f"{total.total()} mutants ({origin}), {share:.1%} killed; {date.today().isoformat()}"
    return f"# Mutation testing\n\n{head}\n\n" + "\n".join([*lines, *survivors])


if __name__ == "__main__":
    main()
