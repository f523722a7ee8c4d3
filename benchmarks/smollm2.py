"""Do the board's findings hold on a language model? docs/log.md registers the stages, in order:

    uv run benchmarks/smollm2.py plan     the planner's order of the cells; commit it first
    uv run benchmarks/smollm2.py tune     every arm at three rates, two validation seeds
    uv run benchmarks/smollm2.py test     every arm at its rate, six test seeds
    uv run benchmarks/smollm2.py sizes    the planner's other cells at their arms' rates, two seeds
    uv run benchmarks/smollm2.py report   the tables so far

Two runs at a time, each on one thread. A stage goes on where it was stopped: runs.jsonl in
benchmarks/results/smollm2 has the finished runs. Keys for a small trial of the stages:
folder=<another> seconds=20 questions=8.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from pods import files
from pods.figures.statistics import difference
from pods.runs import results

ROOT = Path(__file__).resolve().parents[1]
CELLS = {  # (P, n, m) of an arm: its own, then two that only the planner's test has
    "grpo": [(4, 4, 4), (8, 4, 4), (4, 8, 8)],
    "pods": [(4, 8, 4), (4, 16, 4), (8, 4, 2)],
    "thin": [(4, 4, 4), (8, 4, 4), (4, 8, 4)],
    "max_abs_advantage": [(8, 4, 2), (4, 8, 4), (4, 16, 4)],
    "horvitz_thompson": [(4, 8, 4), (4, 16, 4), (8, 4, 2)],
}
RATES = (1e-4, 3e-4, 1e-3)
SEEDS = {"tune": (0, 1), "sizes": (0, 1), "test": (100, 101, 102, 103, 104, 105)}
MARKS = 5  # checkpoints that are scored, at equal distances of priced seconds
Setting = tuple[str, int, int, int, float]  # arm, P, n, m, rate


@dataclass(frozen=True)
class StudyRun:
    stage: str
    arm: str
    P: int
    n: int
    m: int
    rate: float
    seed: int

    @property
    def name(self) -> str:
        sizes = f"P{self.P}-n{self.n}-m{self.m}"
        return f"smollm2-{self.arm}-{sizes}-rate{self.rate:g}-seed{self.seed}"


@dataclass(frozen=True)
class Study:
    """Where the stages keep their files, and how long their runs are."""

    folder: Path
    seconds: int  # of training, priced
    questions: str  # to score: a number, or null for all

    @property
    def runs(self) -> Path:
        """The folder of the runs and their results, which nobody commits."""
        return ROOT / "checkpoints" / self.folder.name

    def records(self) -> list[dict]:
        return files.read_lines(self.folder / "runs.jsonl")

    def scores(self, stage: str) -> dict[Setting, list[float]]:
        """The accuracy of each seed at temperature 1 in percent, mean over the marks."""
        scores: dict[Setting, list[float]] = {}
        for record in sorted(self.records(), key=lambda record: record["seed"]):
            if record["stage"] == stage:
                setting = tuple(record[key] for key in ("arm", "P", "n", "m", "rate"))
                scores.setdefault(setting, []).append(100 * float(np.mean(record["sampled"])))
        return scores

    def rates(self) -> dict[str, float]:
        """The best rate of each arm whose tuning is finished, by the mean over the seeds."""
        seeds = len(SEEDS["tune"])
        means = {s: np.mean(a) for s, a in self.scores("tune").items() if len(a) == seeds}
        rates = {}
        for arm in CELLS:
            by_rate = {setting[-1]: mean for setting, mean in means.items() if setting[0] == arm}
            if len(by_rate) == len(RATES):
                rates[arm] = max(by_rate, key=by_rate.get)
        return rates


def main() -> None:
    stage, *keys = sys.argv[1:] or [""]
    values = dict(key.split("=") for key in keys)
    folder = Path(values.get("folder", ROOT / "benchmarks" / "results" / "smollm2"))
    study = Study(folder, int(values.get("seconds", 1000)), values.get("questions", "null"))
    if stage == "plan":
        plan(study)
    elif stage in SEEDS:
        call("evaluate_run.py", "run=null", "experiment=smollm2", *scoring(study, stage))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(partial(finish, study), runs_of(study, stage)))
    elif stage != "report":
        sys.exit(f"stage {stage!r}: choose plan, tune, test, sizes or report")
    report(study)


def runs_of(study: Study, stage: str) -> Iterator[StudyRun]:
    """The runs of a stage that are not recorded, seed by seed: after each, every arm has it."""
    done = {record["name"] for record in study.records()}
    rates = study.rates()
    if stage != "tune" and len(rates) < len(CELLS):
        sys.exit(f"{stage}: finish tune first")
    for seed, (arm, cells) in product(SEEDS[stage], CELLS.items()):
        chosen = cells[1:] if stage == "sizes" else cells[:1]
        for cell, rate in product(chosen, RATES if stage == "tune" else [rates[arm]]):
            run = StudyRun(stage, arm, *cell, rate, seed)
            if run.name not in done:
                yield run


def finish(study: Study, run: StudyRun) -> None:
    """Train a run, score its checkpoints, record it, and remove its weights."""
    call(
        "train.py",
        "experiment=smollm2",
        f"run={run.name}",
        f"algorithm={run.arm}",
        f"prompts_per_step={run.P}",
        f"rollouts_per_prompt={run.n}",
        f"kept_per_prompt={run.m}",
        f"optimizer.learning_rate={run.rate}",
        f"seed={run.seed}",
        f"budget.train_seconds={study.seconds}",
        f"checkpoint.every_seconds={study.seconds / MARKS}",
        "checkpoint.keep=1",
        "evaluation.every_seconds=null",
        "ledger_texts=first",
        "logger=[]",
        "threads=1",
        f"output_dir={study.runs}",
    )
    call("evaluate_run.py", f"run={run.name}", *scoring(study, run.stage))
    record = asdict(run) | {"name": run.name, "seconds": study.seconds, "sampled": [], "greedy": []}
    for scores in results.read(study.runs / "results" / f"{run.name}.json").values():
        for dataset, entry in scores.datasets.items():
            key = "greedy" if dataset.endswith(results.GREEDY) else "sampled"
            record[key].append(round(float(np.mean(entry.ans_acc)), 4))
    files.append(study.folder / "runs.jsonl", record)
    for checkpoint in (study.runs / run.name).glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def scoring(study: Study, stage: str) -> list[str]:
    """The keys of evaluate_run.py that all runs of a stage share."""
    return [
        f"split={'test' if stage == 'test' else 'validation'}",
        f"questions={study.questions}",
        "repeats=1",
        "max_sequences=64",
        f"output_dir={study.runs}",
        f"results_dir={study.runs / 'results'}",
    ]


def plan(study: Study) -> None:
    """Predict the signal a second of every cell, at the base."""
    cells = sorted({cell for cells in CELLS.values() for cell in cells})
    answer = call(
        "scripts/plan.py",
        "experiment=smollm2",
        f"algorithms=[{','.join(CELLS)}]",
        "cells=" + json.dumps(cells, separators=(",", ":")),
        "clock=l40s",
        "json=true",
        f"output_dir={study.runs}",
        f"out_dir={study.runs}",
    )
    files.write_atomic(study.folder / "plan.json", answer)


def call(script: str, *keys: str) -> str:
    """What a command of ours prints; its messages go to stderr."""
    command = [sys.executable, str(ROOT / script), *keys]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def report(study: Study) -> None:
    """Every setting, the differences by seed with their 95 % intervals, and the planner's test."""
    for stage in SEEDS:
        for setting, accuracies in study.scores(stage).items():
            print(stage, *setting, *(f"{accuracy:.1f}" for accuracy in accuracies))
    rates = study.rates()
    print("rates:", rates)
    arms = {setting[0]: np.array(seeds) for setting, seeds in study.scores("test").items()}
    for baseline in ("grpo", "pods"):
        for arm in arms.keys() - {baseline}:
            seeds = min(len(arms[arm]), len(arms.get(baseline, ())))
            if seeds > 1:
                points = difference(arms[baseline][:seeds], arms[arm][:seeds], paired=True)
                print(f"{arm} - {baseline}:", points)
    trained = {
        setting[:4]: np.mean(accuracies)
        for setting, accuracies in (study.scores("tune") | study.scores("sizes")).items()
        if setting[-1] == rates.get(setting[0])
    }
    if (study.folder / "plan.json").is_file() and len(trained) > 2:
        cells = json.loads((study.folder / "plan.json").read_text())["cells"]
        predicted = {(c["algorithm"], c["prompts"], c["n"], c["m"]): c["relative"] for c in cells}
        pairs = np.array([(predicted[cell] or 0.0, score) for cell, score in trained.items()])
        resamples = np.random.default_rng(0).integers(len(pairs), size=(10_000, len(pairs)))
        spearmans = [spearmanr(*pairs[rows].T).statistic for rows in resamples]
        low, high = np.nanpercentile(spearmans, (2.5, 97.5))
        spearman = spearmanr(*pairs.T).statistic
        print(f"planner, {len(pairs)} cells: Spearman {spearman:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
