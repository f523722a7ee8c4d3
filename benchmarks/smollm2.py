"""Do the board's findings hold on a language model? docs/log.md registers the stages, in order:

    uv run benchmarks/smollm2.py plan     the planner's order of the cells; commit it first
    uv run benchmarks/smollm2.py tune     every arm at two rates, two validation seeds
    uv run benchmarks/smollm2.py test     every arm at its rate, four test seeds
    uv run benchmarks/smollm2.py sizes    the planner's other cells at their arms' rates, two seeds
    uv run benchmarks/smollm2.py report   the tables so far

Two runs at a time, each on one thread. SIGTERM and Ctrl-C save and end them; the same command goes
on: runs.jsonl in benchmarks/results/smollm2 has the finished runs, which are not trained again.
Keys for a small trial of the stages: folder=<another> seconds=20 questions=8.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import psutil
from scipy.stats import spearmanr

from pods import files
from pods.figures.statistics import difference
from pods.runs import checkpoints, results
from pods.runs.folder import provenance

ROOT = Path(__file__).resolve().parents[1]
CELLS = {  # (P, n, m) of an arm: its own, then two that only the planner's test has
    "grpo": [(4, 4, 4), (8, 4, 4), (4, 8, 8)],
    "pods": [(4, 8, 4), (4, 16, 4), (8, 4, 2)],
    "thin": [(4, 4, 4), (8, 4, 4), (4, 8, 4)],
    "max_abs_advantage": [(8, 4, 2), (4, 8, 4), (4, 16, 4)],
    "horvitz_thompson": [(4, 8, 4), (4, 16, 4), (8, 4, 2)],
}
RATES = (3e-4, 1e-3)
SEEDS = {"tune": (0, 1), "sizes": (0, 1), "test": (100, 101, 102, 103)}
EVALUATIONS = 3  # checkpoints that are scored, at equal distances of priced seconds
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
        """The accuracy of each seed at temperature 1 in percent, mean over the checkpoints."""
        scores: dict[Setting, list[float]] = {}
        for record in sorted(self.records(), key=lambda record: record["seed"]):
            if record["stage"] == stage:
                setting = tuple(record[key] for key in ("arm", "P", "n", "m", "rate"))
                scores.setdefault(setting, []).append(100 * float(np.mean(record["sampled"])))
        return scores

    def rates(self) -> dict[str, float]:
        """The best rate of each arm in tuning so far, by the mean over the seeds."""
        scores = self.scores("tune")
        best_last = sorted(scores, key=lambda setting: np.mean(scores[setting]))
        return {arm: rate for arm, *_, rate in best_last}


def main() -> None:
    stage, *keys = sys.argv[1:] or [""]
    values = dict(key.split("=") for key in keys)
    folder = Path(values.get("folder", ROOT / "benchmarks" / "results" / "smollm2"))
    study = Study(folder, int(values.get("seconds", 150)), values.get("questions", "null"))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if stage == "plan":
        with ThreadPoolExecutor() as pool:
            pool.submit(plan, study).result()
    elif stage in SEEDS:
        runs = list(runs_of(study, stage))
        call("evaluate_run.py", "run=null", "experiment=smollm2", *scoring(study, stage))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(partial(finish, study), runs))
    elif stage != "report":
        sys.exit(f"stage {stage!r}: choose plan, tune, test, sizes or report")
    report(study)


def runs_of(study: Study, stage: str) -> Iterator[StudyRun]:
    """The runs of a stage that are not recorded, seed by seed: after each, every arm has it."""
    done = {record["name"] for record in study.records()}
    if stage != "tune" and any(runs_of(study, "tune")):
        sys.exit(f"{stage}: finish tune first")
    rates = study.rates()
    for seed, (arm, cells) in product(SEEDS[stage], CELLS.items()):
        chosen = cells[1:] if stage == "sizes" else cells[:1]
        for cell, rate in product(chosen, RATES if stage == "tune" else [rates[arm]]):
            run = StudyRun(stage, arm, *cell, rate, seed)
            if run.name not in done:
                yield run


def stop(number: int, _: object) -> None:
    """The handler of a signal: train.py saves after its step, and nothing further is started."""
    for process in psutil.Process().children():
        process.terminate()
    sys.exit(128 + number)


def finish(study: Study, run: StudyRun) -> None:
    """Train a run, score its checkpoints, record it, and remove its weights."""
    train(study, run)
    call("evaluate_run.py", f"run={run.name}", *scoring(study, run.stage))
    record = asdict(run) | {"name": run.name, "seconds": study.seconds}
    record |= {"commit": provenance()["git_commit"], "date": time.strftime("%F")}
    content = results.read(study.runs / "results" / f"{run.name}.json").values()
    interval = study.seconds / EVALUATIONS
    record["sampled"] = [accuracy_after(interval * k, content) for k in range(1, EVALUATIONS + 1)]
    files.append(study.folder / "runs.jsonl", record)
    for checkpoint in (study.runs / run.name).glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def accuracy_after(seconds: float, checkpoints: Iterable[results.Scores]) -> float:
    """The accuracy at temperature 1 of the first checkpoint at or after this time: a run that was
    stopped has one more, between two of them."""
    first = next(one for one in checkpoints if one.meta["train_seconds"] >= seconds)
    (entry,) = first.datasets.values()
    return round(float(np.mean(entry.ans_acc)), 4)


def train(study: Study, run: StudyRun) -> None:
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
        f"checkpoint.every_seconds={study.seconds / EVALUATIONS}",
        "checkpoint.keep=1",
        "evaluation.every_seconds=null",
        "ledger_texts=first",
        "logger=[]",
        "threads=1",
        f"output_dir={study.runs}",
    )


def scoring(study: Study, stage: str) -> list[str]:
    """The keys of evaluate_run.py that all runs of a stage share."""
    return [
        f"split={'test' if stage == 'test' else 'validation'}",
        f"questions={study.questions}",
        "repeats=1",
        "greedy=false",
        "max_sequences=64",
        f"output_dir={study.runs}",
        f"results_dir={study.runs / 'results'}",
    ]


def plan(study: Study) -> None:
    """Predict the signal a second of every cell, at a GRPO run's first checkpoint, seed 900."""
    run = StudyRun("plan", "grpo", *CELLS["grpo"][0], RATES[0], 900)
    train(study, run)
    first = checkpoints.find(study.runs / run.name)[0]
    cells = sorted({cell for cells in CELLS.values() for cell in cells})
    answer = call(
        "scripts/plan.py",
        f"run={run.name}",
        f"checkpoint={first.step}",
        "questions=32",
        f"algorithms=[{','.join(CELLS)}]",
        "cells=" + json.dumps(cells, separators=(",", ":")),
        "clock=l40s",
        "json=true",
        f"output_dir={study.runs}",
    )
    files.write_atomic(study.folder / "plan.json", answer)


def call(script: str, *keys: str) -> str:
    """What a command of ours prints; its messages go to stderr."""
    command = [sys.executable, str(ROOT / script), *keys]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # it gets a signal once, by stop(): a second one ends it unsaved
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
        for arm in sorted(arms.keys() - {baseline}):
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
