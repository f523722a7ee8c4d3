"""Does an algorithm beat GRPO and PODS? Equal priced seconds, unseen seeds, each at its best sizes.

    uv run benchmarks/board.py                          # the table of the stored results
    uv run benchmarks/board.py my_file.py:my_algorithm  # one's own against GRPO and PODS
    uv run benchmarks/board.py stage=tune               # the grid of every arm: hours, resumes
Trainings are processes of one thread, in shuffled order; what is stored is not repeated.
"""

import json
import os
import random
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from rich.console import Console
from rich.progress import track
from scipy.stats import ttest_rel

from pods.config.command import CONFIG_DIR, command, compose, typed
from pods.config.errors import UserError
from pods.config.keys import Section, Text, TrainConfig
from pods.figures import speedup
from pods.figures.statistics import Difference, difference, level
from pods.runs.folder import provenance, read_metrics

MARKS = 12  # evaluations of a training
TUNING, UNSEEN = range(100), range(100, 200)  # seeds
FINALISTS = 4  # cells of an arm that are tuned on more seeds than the first
RIVALS = ("grpo", "pods")
METRICS = {"accuracy": "Accuracy at temperature 1", "greedy": "Greedy accuracy"}
PRELOADED = ["pods.training.build", "pods.training.loop", "pods.evaluation.midrun"]


class Arm(Section):
    sizes: list[list[int]]
    what: Text
    overrides: list[Text] | None = None


class BoardConfig(Section):
    algorithm: Text | None
    cell: list[float] | None = Field(min_length=4, max_length=4)
    stage: Literal["tune", "report"]
    seeds: int = Field(ge=1, le=len(UNSEEN))
    budget: float = Field(gt=0)
    clock: Text
    jobs: int = Field(ge=1)
    output_dir: Text
    results_dir: Text
    as_json: bool = Field(alias="json")
    prompts: list[int]
    learning_rates: list[float]
    arms: dict[Text, Arm]


class Cell(NamedTuple):
    """Sizes of a step, and the learning rate at its start."""

    P: int
    n: int
    m: int
    rate: float


class Training(NamedTuple):
    """One run: of an arm at a cell, with a seed and a budget at some prices."""

    arm: str
    cell: Cell
    seed: int
    budget: float
    clock: str

    @property
    def run(self) -> str:
        return re.sub(r"[^\w.+-]+", "_", "-".join(map(str, [self.arm, *self.cell, *self[2:]])))


Results = dict[Training, dict[str, list[float]]]  # -> accuracies at the marks, by metric


@command("board", BoardConfig, CONFIG_DIR / "board")
def main(config: BoardConfig) -> None:
    arms = [config.algorithm] if config.algorithm else list(config.arms)
    if config.stage == "tune":
        tune(config, arms)
        return
    cells = {arm: cell_of(config, arm) for arm in dict.fromkeys([*RIVALS, *arms])}
    seeds = UNSEEN[: config.seeds]
    wanted = trainings(config, {arm: [cell] for arm, cell in cells.items()}, seeds)
    results = run(config, wanted)
    scores = {
        metric: {a: np.array([results[t][metric] for t in wanted if t.arm == a]) for a in cells}
        for metric in METRICS
    }
    for metric in METRICS:
        print(f"{METRICS[metric]}, mean over {MARKS} marks and {config.seeds} seeds\n")
        print(speedup.table(rows(cells, scores[metric])), "\n")
    if config.as_json and config.algorithm:
        against = {metric: against_rivals(config.algorithm, scores[metric]) for metric in METRICS}
        against["against"] = against.pop("accuracy")
        print(json.dumps({"arm": config.algorithm, "seeds": list(seeds)} | against))


def tune(config: BoardConfig, arms: list[str]) -> None:
    """Every cell of these arms on the first seed, then the best of each arm on the others."""
    cells = {arm: grid(config, arm) for arm in arms}
    first, *others = TUNING[: config.seeds]
    run(config, trainings(config, cells, [first]))
    best = {arm: ranked(config, arm)[:FINALISTS] for arm in arms}
    run(config, trainings(config, best, others))


def grid(config: BoardConfig, arm: str) -> list[Cell]:
    every = product(config.prompts, config.arms[arm].sizes, config.learning_rates)
    return [Cell(P, n, m, rate) for P, (n, m), rate in every]


def trainings(
    config: BoardConfig, cells: dict[str, list[Cell]], seeds: Iterable[int]
) -> list[Training]:
    every = ((arm, cell) for arm, own in cells.items() for cell in own)
    return [Training(*a, s, config.budget, config.clock) for a, s in product(every, seeds)]


def ranked(config: BoardConfig, arm: str) -> list[Cell]:
    """An arm's cells, those of most seeds first, among equals by mean accuracy in tuning."""
    means: dict[Cell, list[float]] = {}
    for training, marks in stored(Path(config.results_dir) / "tune.jsonl").items():
        if (training.arm, training.budget, training.clock) == (arm, config.budget, config.clock):
            means.setdefault(training.cell, []).append(np.mean(marks["accuracy"]))
    return sorted(means, key=lambda cell: (-len(means[cell]), -np.mean(means[cell])))


def cell_of(config: BoardConfig, arm: str) -> Cell:
    """The cell of the highest mean accuracy in tuning; of one's own algorithm that of PODS."""
    if config.cell and arm == config.algorithm:
        P, n, m, rate = config.cell
        return Cell(int(P), int(n), int(m), rate)
    cells = ranked(config, arm if arm in config.arms else "pods")
    if not cells:
        raise UserError(f"algorithm={arm}: no result of tuning; run stage=tune, or set cell")
    return cells[0]


def run(config: BoardConfig, trainings: list[Training]) -> Results:
    """Their results; those that are not stored are trained, and stored one by one."""
    files = [
        Path(config.results_dir) / f"{config.stage}.jsonl",
        Path(config.output_dir) / "own.jsonl",
    ]
    results = stored(files[0]) | stored(files[1])
    missing = [training for training in trainings if training not in results]
    random.Random(0).shuffle(missing)
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    facts = {"commit": provenance()["git_commit"]}
    with ProcessPoolExecutor(config.jobs, context, max_tasks_per_child=1) as pool:
        futures = {pool.submit(train, overrides(config, t)): t for t in missing}
        done = track(as_completed(futures), "", len(futures), console=Console(stderr=True))
        for future in done if futures else ():
            training = futures[future]
            results[training] = future.result()
            file = files[training.arm not in config.arms]
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as lines:
                lines.write(json.dumps(training._asdict() | results[training] | facts) + "\n")
    return results


def stored(file: Path) -> Results:
    """The results in a file, one a line."""
    results: Results = {}
    for line in read_metrics(file) if file.is_file() else ():
        names = {name: line[name] for name in Training._fields}
        training = Training(**names | {"cell": Cell(*line["cell"])})
        results[training] = {name: line[name] for name in METRICS}
    return results


def overrides(config: BoardConfig, training: Training) -> list[str]:
    """What the command line of this training would say."""
    arm, (P, n, m, rate) = config.arms.get(training.arm), training.cell
    name = "algorithm.name" if arm is None else "algorithm"
    own = arm.overrides if arm and arm.overrides else [f"{name}={training.arm}"]
    return [
        *own,
        f"prompts_per_step={P}",
        f"rollouts_per_prompt={n}",
        f"kept_per_prompt={m}",
        f"micro_batch_size={min(P * m, 64)}",
        f"optimizer.learning_rate={rate}",
        "optimizer.schedule=linear",
        "optimizer.warmup_steps=0.1",
        f"clock={training.clock}",
        f"budget.train_seconds={training.budget}",
        f"evaluation.every_seconds={training.budget / MARKS}",
        f"evaluation.split={'validation' if config.stage == 'tune' else 'test'}",
        f"seed={training.seed}",
        f"run={config.stage}-{training.run}",
        f"output_dir={config.output_dir}",
        "checkpoint.every_seconds=null",
        "ledger.texts=none",
        "logger=[]",
        "backend.threads=1",
    ]


def train(arguments: list[str]) -> dict[str, list[float]]:
    """A training in this process, and its accuracies."""
    import train as entry  # the parent stays without torch
    from pods.training.check import check, settle

    config = typed(TrainConfig, compose("train", arguments))
    settle(config)
    check(config)
    with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):
        entry.train(config)
    marks = read_metrics(Path(config.output_dir) / config.run / "evaluations.jsonl")
    names = {"accuracy": "eval/accuracy", "greedy": "eval/greedy_accuracy"}
    return {metric: [mark[name] for mark in marks] for metric, name in names.items()}


def rows(cells: dict[str, Cell], marks: dict[str, np.ndarray]) -> list[dict[str, str]]:
    """A row for each arm, by accuracy; marks: (seeds, marks) of each arm."""
    table, p_values = [], {rival: holm(rival, marks) for rival in RIVALS}
    for arm in sorted(cells, key=lambda arm: -marks[arm].mean()):
        table.append({"arm": arm, "P n m rate": "{} {} {} {:g}".format(*cells[arm])})
        table[-1] |= {"%": f"{100 * marks[arm].mean():.1f}"}
        table[-1] |= {"at the end": f"{100 * level(marks[arm]).mean():.1f}"}
        for rival in RIVALS:
            column = {f"- {rival}": speedup.points(ahead(arm, rival, marks))}
            table[-1] |= column | {f"Holm, {rival}": f"{p_values[rival].get(arm, 1):.2g}"}
    return table


def ahead(arm: str, rival: str, marks: dict[str, np.ndarray]) -> Difference:
    """Of the time-averaged accuracies, paired by seed."""
    return difference(marks[rival].mean(axis=1), marks[arm].mean(axis=1), paired=True)


def holm(rival: str, marks: dict[str, np.ndarray]) -> dict[str, float]:
    """p values of all arms against the rival, adjusted for their number (Holm 1979)."""
    averages = {arm: values.mean(axis=1) for arm, values in marks.items()}
    others = [arm for arm in averages if not np.array_equal(averages[arm], averages[rival])]
    raw = {arm: ttest_rel(averages[arm], averages[rival]).pvalue for arm in others}
    adjusted, largest = {}, 0.0
    for place, arm in enumerate(sorted(raw, key=raw.get)):
        largest = max(largest, min(1.0, raw[arm] * (len(raw) - place)))
        adjusted[arm] = largest
    return adjusted


def against_rivals(arm: str, marks: dict[str, np.ndarray]) -> dict[str, Any]:
    """In percentage points."""
    results = {rival: ahead(arm, rival, marks) for rival in RIVALS}
    return {
        rival: {
            "difference": 100 * result.difference,
            "ci95": result.ci95 and [100 * end for end in result.ci95],
        }
        for rival, result in results.items()
    }


def noise(completions: list[str], **columns: Any) -> list[float]:
    """A reward that knows nothing: a coin tossed by the text."""
    return [float(random.Random(text).random() < 0.5) for text in completions]


if __name__ == "__main__":
    plain = [f"algorithm={a}" if re.match(r"[^=-]+$", a) else a for a in sys.argv[1:]]
    sys.argv[1:] = plain
    main()
