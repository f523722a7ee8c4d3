"""Faults put into the code one at a time: how many of them do the tests notice?

    uv run --group mutation benchmarks/mutation.py --sample 400 --seed 0 --write

mutmut writes the mutants of the files in pyproject.toml to mutants/, beside which no ../shared
exists. One pytest session there forks for each mutant and runs the tests of its module, the
quickest first, up to the first failure. (`mutmut run` itself fails here: where it learns which test
enters which function, a command that a test starts in another folder does not find its settings.)
An interrupted run goes on: what was killed stays killed while its mutant is the same, and the
tests are not tried again without a mutant if all were (delete mutants*.json to begin anew).
A survivor is a missing test, code to delete, or equivalent: the reason then stands in
equivalent_mutants.yaml, by file and changed line. It still counts as a survivor.
"""

import argparse
import gc
import json
import math
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
import yaml
from mutmut.__main__ import create_mutants
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, walk_mutatable_files

ROOT = Path(__file__).resolve().parents[1]
REASONS = ROOT / "benchmarks" / "equivalent_mutants.yaml"
SECONDS = ROOT / "mutants.seconds.json"  # test -> s in the unchanged code
KILLED = ROOT / "mutants.json"  # mutant -> its diff, where a test noticed it
TESTS = {  # module -> the test files that belong to it
    "pods.advantages": "advantages rules", "pods.training.autoplan": "autoplan",
    "pods.batch": "rules rules_of_others resampling",
    "pods.curriculum": "curriculum resampling",
    "pods.runs.checkpoints": "checkpoints runs",
    "pods.clock": "clock warm_up distributed", "pods.ranks": "distributed",
    "pods.engines.trl": "trainer engine_choice",
    "pods.engines": "engine_choice engines engines_vllm guard",
    "pods.evaluation": "evaluation from_training metrics",
    "pods.figures": "statistics curves speedup arms chosen", "pods.runs.ledger": "ledger",
    "pods.training.loop": "clock midrun warm_up trainer faults autoplan",
    "pods.training.metrics": "rollouts warm_up",
    "pods.training.rehearsal": "warm_up", "pods.resampling": "resampling",
    "pods.runs.results": "results curves",
    "pods.rollouts": "rollouts advantages scoring trainer resampling gradient_noise",
    "pods.rules": "rules rules_of_others advantages",
    "pods.seam": "seam warm_up trainer outside_truths guard",
    "pods.tasks": "tasks tasks_own tasks_prompts arithmetic",
    "rewards": "rewards rewards_published rewards_strict rewards_tags scoring",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=400, help="mutants, of all modules")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="mutants of this module, e.g. pods.clock")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested side by side")
    parser.add_argument("--write", action="store_true", help="write results/mutation.md")
    options = parser.parse_args()
    os.chdir(ROOT)  # mutmut works in the current folder
    shutil.rmtree("mutants", ignore_errors=True)
    copy_src_dir()
    copy_also_copy_files()
    create_mutants(1)
    files = mutants()
    names = sorted(name for name in files if name.startswith(options.only))
    chosen = sorted(random.Random(options.seed).sample(names, min(options.sample, len(names))))
    before = json.loads(KILLED.read_text()) if KILLED.is_file() else {}
    known = {m: "killed" for m in chosen if m in before and before[m] == diff(m, files)}
    known |= {m: "equivalent" for m in chosen if reason_of(m, files)}
    session = Session([m for m in chosen if m not in known], options.jobs, files)
    session.outcomes = known
    os.chdir("mutants")
    sys.path.insert(0, os.getcwd())
    tests = sorted({f"tests/{file}" for mutant in session.mutants for file in tests_of(mutant)})
    if tests:
        pytest.main(["-n", "0", "-p", "no:cacheprovider", "-q", *tests], plugins=[session])
    os.chdir(ROOT)
    text = report(session.outcomes, files, f"seed {options.seed} of {len(names)}")
    print(text)
    if options.write:
        path = ROOT / "benchmarks" / "results" / "mutation.md"
        path.with_suffix(".tmp").write_text(text)
        path.with_suffix(".tmp").replace(path)


def mutants() -> dict[str, Path]:
    """Every mutant's name and its file."""
    found = {}
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        found |= dict.fromkeys(data.exit_code_by_key, path)
    return found


def diff(mutant: str, files: dict[str, Path]) -> str:
    before = os.getcwd()
    os.chdir(ROOT)  # the paths begin there
    try:
        return get_diff_for_mutant(mutant, path=str(files[mutant]))
    finally:
        os.chdir(before)


def reason_of(mutant: str, files: dict[str, Path]) -> str | None:
    """Why no test can tell this mutant, from equivalent_mutants.yaml."""
    changed = diff(mutant, files)
    sign = "+ " if "\n+ " in changed else "- "  # a deleted line is named as it was
    lines = [line[1:].strip() for line in changed.splitlines() if line.startswith(sign)]
    reasons = yaml.safe_load(REASONS.read_text()).get(str(files[mutant]), {})
    return next((reasons[line] for line in lines if line in reasons), None)


def tests_of(mutant: str) -> set[str]:
    names = next(names for module, names in TESTS.items() if mutant.startswith(module))
    return {f"test_{name}.py" for name in names.split()}


class Session:
    """A pytest plugin: its loop runs, for each mutant, the tests of its module in a fork."""

    def __init__(self, mutants: list[str], jobs: int, files: dict[str, Path]) -> None:
        self.mutants, self.jobs, self.files = mutants, jobs, files
        self.outcomes: dict[str, str] = {}
        self.seconds: Counter[str] = Counter()  # test -> s in the unchanged code; inf: it fails

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and os.environ["MUTANT_UNDER_TEST"]:
            os._exit(1)
        self.seconds[report.nodeid] += math.inf if report.failed else report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.freeze()  # what was imported is not searched for garbage in every fork
        timed = json.loads(SECONDS.read_text()) if SECONDS.is_file() else {}
        if not {item.nodeid for item in session.items} <= timed.keys():  # a new one might fail
            os.waitpid(self.start("", session.items), 0)
        self.seconds.update(json.loads(SECONDS.read_text()))
        failing = [i.nodeid for i in session.items if self.seconds[i.nodeid] == math.inf]
        print("\nfail without a mutant:", *failing)
        order = sorted(session.items, key=lambda item: self.seconds[item.nodeid])
        running: dict[str, tuple[int, float]] = {}  # mutant -> its process and end of time
        waiting = self.mutants[::-1]
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop()
                files = tests_of(mutant)
                mine = [i for i in order if i.path.name in files and i.nodeid not in failing]
                seconds = 60 + 5 * sum(self.seconds[item.nodeid] for item in mine)
                running[mutant] = self.start(mutant, mine), time.monotonic() + seconds
            for mutant, (child, end) in list(running.items()):
                if outcome := ended(child, end):
                    del running[mutant]
                    self.outcomes[mutant] = outcome
                    print(f"\n{mutant}: {outcome}", flush=True)
                    self.keep(mutant, outcome)
            time.sleep(0.02)
        return True

    def keep(self, mutant: str, outcome: str) -> None:
        """Note a killed mutant for the next call."""
        if outcome == "survived":
            return
        before = json.loads(KILLED.read_text()) if KILLED.is_file() else {}
        KILLED.with_suffix(".tmp").write_text(
            json.dumps(before | {mutant: diff(mutant, self.files)})
        )
        KILLED.with_suffix(".tmp").replace(KILLED)

    def start(self, mutant: str, items: list[pytest.Item]) -> int:
        """The process that runs these tests; without a mutant they are timed."""
        if child := os.fork():
            return child
        os.setpgid(0, 0)
        os.environ["MUTANT_UNDER_TEST"] = mutant  # read by mutmut's mutants, commands too
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if not mutant:
            SECONDS.write_text(json.dumps(self.seconds))
        os._exit(0)


def ended(child: int, end: float) -> str | None:
    """killed, survived, timeout; None while the tests run."""
    found, status = os.waitpid(child, os.WNOHANG)
    if found:
        return "killed" if status else "survived"
    if time.monotonic() < end:
        return None
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def report(outcomes: dict[str, str], files: dict[str, Path], origin: str) -> str:
    """Killed and survived by file, then each survivor's diff with the reason to leave it."""
    counts: dict[str, Counter[str]] = {}
    survivors = []
    for mutant, outcome in outcomes.items():
        path = str(files[mutant])
        if outcome in ("survived", "equivalent"):
            said, changed = reason_of(mutant, files) or outcome, diff(mutant, files).strip()
            survivors.append(f"\n`{mutant}`: {said}\n\n```diff\n{changed}\n```\n")
        counts.setdefault(path, Counter())[outcome] += 1
    counts["all"] = total = sum(counts.values(), Counter())
    share = (total["killed"] + total["timeout"]) / total.total()
    head = f"{total.total()} mutants ({origin}): {share:.1%} killed; {date.today()}"
    columns = ("killed", "timeout", "survived", "equivalent")
    rows = [
        f"| {path} | {' | '.join(str(c[key]) for key in columns)} |" for path, c in counts.items()
    ]
    table = [f"| file | {' | '.join(columns)} |", "|---|---|---|---|---|", *rows]
    return f"# Mutation testing\n\n{head}\n\n" + "\n".join([*table, *survivors])


if __name__ == "__main__":
    main()
