"""Does an algorithm beat GRPO and PODS? Equal priced seconds, unseen seeds, each at its best sizes.

    uv run benchmarks/board.py                          # the stored results of world=sums
    uv run benchmarks/board.py my_file.py:my_algorithm  # one's own against GRPO and PODS
A world is a file of config/experiment or of experiment/ in benchmarks/worlds, or in the folder of
--config-dir. A training is a process of train.py; what is stored is not repeated, one that was
stopped goes on.
"""

import fcntl
import itertools
import json
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple, TextIO

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from benchmarks import ranking
from benchmarks.ranking import Cell
from pods import files
from pods.config.command import CONFIG_DIR, SEARCHED, command
from pods.config.errors import UserError
from pods.config.keys import Location, Section, Text
from pods.config.paths import WORLDS
from pods.figures import statistics
from pods.runs.folder import provenance
from pods.training.check import try_out

SEEDS = range(100, 200)  # tuning took those from 0 on


class Arm(Section):
    overrides: list[Text] | None = None
    cells: dict[Text, Cell]  # the best of tuning, by world, and by clock other than l40s


class BoardConfig(Section):
    algorithm: Text | None
    cell: Cell | None
    world: Text
    seeds: int = Field(ge=1, le=len(SEEDS))
    budget: PositiveFloat
    clock: Text
    jobs: PositiveInt
    output_dir: Location
    results_dir: Location
    out_dir: Location
    as_json: bool = Field(alias="json")
    settings: list[Text]
    arms: dict[Text, Arm]


class Training(NamedTuple):
    """One run: of an arm at a cell, with a seed and a budget at some prices, in a world."""

    arm: str
    cell: Cell
    seed: int
    budget: float
    clock: str
    world: str

    @property
    def run(self) -> str:
        """The name of its folder, until its result is stored."""
        parts = [self.world, self.arm, *self.cell, self.seed, self.budget, self.clock]
        return re.sub(r"[^\w.+-]+", "_", "-".join(map(str, parts)))


@command("board", BoardConfig, CONFIG_DIR / "benchmarks")
def main(config: BoardConfig) -> None:
    if len(SEARCHED) == 1:  # without --config-dir
        SEARCHED.append(CONFIG_DIR.parent / WORLDS)
    place = config.world if config.clock == "l40s" else config.clock
    arms = [name for name, arm in config.arms.items() if place in arm.cells]
    if config.algorithm:
        arms = [config.algorithm]
    cells = {arm: cell_of(config, arm, place) for arm in (*ranking.RIVALS, *arms)}
    seeds = [*SEEDS[: config.seeds]]
    wanted = [
        Training(arm, cell, seed, config.budget, config.clock, config.world)
        for arm, cell in cells.items()
        for seed in seeds
    ]
    results = run(config, wanted)
    accuracies, adjusted = {}, {}
    text = ""
    for metric, title in ranking.TITLES.items():
        values = np.array([results[training][metric] for training in wanted])
        by_arm = values.reshape(len(cells), len(seeds), ranking.EVALUATIONS)
        accuracies[metric] = dict(zip(cells, by_arm, strict=True))
        adjusted[metric] = adjusted_p_values(config, results, [*cells], metric)
        table = ranking.table(cells, accuracies[metric], adjusted[metric])
        text += f"{config.world}: {title}\n\n{table}\n\n"
    text += "p: of the t test, Holm's correction over the variants and prices with both results\n"
    files.write_atomic(config.out_dir / f"board-{config.world}.md", text)
    print(text)
    if not config.algorithm:
        return
    p = adjusted["accuracy"].get((config.algorithm, "pods"))
    print(ranking.sentence(config.algorithm, accuracies["accuracy"], p))
    if config.as_json:
        result = {
            "arm": config.algorithm,
            "world": config.world,
            "seeds": seeds,
            "against": ranking.against_rivals(config.algorithm, accuracies["accuracy"]),
            "greedy": ranking.against_rivals(config.algorithm, accuracies["greedy"]),
        }
        print(json.dumps(result))


def cell_of(config: BoardConfig, arm: str, place: str) -> Cell:
    """The tuned cell of an arm, of one's own algorithm that of PODS; elsewhere that of sums."""
    if config.cell and arm == config.algorithm:
        return config.cell
    cells = config.arms.get(arm, config.arms["pods"]).cells
    return cells.get(place, cells["sums"])


def adjusted_p_values(
    config: BoardConfig, results: dict[Training, Any], arms: list[str], metric: str
) -> dict[tuple[str, str], float]:
    """p value of each (arm, rival) here. The family of Holm's correction is one pair of arms in
    all worlds and at all prices in which both have results of these seeds."""
    seeds = SEEDS[: config.seeds]
    settings = {(t.budget, t.clock, t.world) for t in results}
    adjusted = {}
    for arm, rival in itertools.product(arms, ranking.RIVALS):
        raw = {}
        for budget, clock, world in settings:
            place = world if clock == "l40s" else clock
            pair = [
                [
                    Training(a, cell_of(config, a, place), seed, budget, clock, world)
                    for seed in seeds
                ]
                for a in (arm, rival)
            ]
            if all(training in results for side in pair for training in side):
                averages = np.array([[np.mean(results[t][metric]) for t in side] for side in pair])
                p = ranking.p_value(*averages)
                if p is not None:
                    raw[budget, clock, world] = p
        here = statistics.holm(raw).get((config.budget, config.clock, config.world))
        if here is not None:
            adjusted[arm, rival] = here
    return adjusted


def run(config: BoardConfig, wanted: list[Training]) -> dict[Training, Any]:
    """Their results; those that are not stored are trained. One board at a time trains in a
    folder; the trainings of one that was killed have its lock, too."""
    results = stored(config)
    arms = {training.arm: training for training in wanted if training not in results}
    for training in arms.values():
        try_out(command_line(config, training))  # in seconds, before any trains
    if not arms:
        return results
    config.output_dir.mkdir(parents=True, exist_ok=True)
    with (config.output_dir / ".board.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"output_dir={config.output_dir}: waiting for the board there\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        results = stored(config)
        train_all(config, [training for training in wanted if training not in results], lock)
    return stored(config)


def train_all(config: BoardConfig, trainings: list[Training], lock: TextIO) -> None:
    """Train, `jobs` at a time, and store each result. After an error no further one starts."""
    facts = {"commit": provenance()["git_commit"], "date": time.strftime("%F")}
    pool = ThreadPoolExecutor(config.jobs)
    try:
        futures = {pool.submit(train, config, lock, training): training for training in trainings}
        for count, future in enumerate(as_completed(futures), 1):
            training = futures[future]
            files.append(
                config.output_dir / "report.jsonl",
                training._asdict() | future.result() | facts,
            )
            # A changed algorithm must not find it done.
            shutil.rmtree(config.output_dir / training.run)
            sys.stderr.write(f"{count} of {len(trainings)}: {training.run}\n")
    finally:
        pool.shutdown(cancel_futures=True)


def train(config: BoardConfig, lock: TextIO, training: Training) -> dict[str, list[float]]:
    """Accuracies at the evaluations, 0 from where the loss diverged. Raises UserError with the last
    line of any other failure."""
    flags = [f"--config-dir={folder}" for folder in SEARCHED[1:]]  # which may hold the world
    words = [CONFIG_DIR.parent / "train.py", *flags, *command_line(config, training)]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, pass_fds=[lock.fileno()]
    )
    diverged = re.search(r"(loss|grad_norm) is (nan|inf)", done.stderr)
    if done.returncode and not diverged:
        last = done.stderr.splitlines() or ["was killed; set fewer jobs"]
        raise UserError(f"{training.run}: {last[-1]}")
    lines = files.read_lines(config.output_dir / training.run / "evaluations.jsonl")
    seconds = [line["train_seconds"] for line in lines]
    due = training.budget / ranking.EVALUATIONS * np.arange(1, ranking.EVALUATIONS + 1)
    after = np.searchsorted(seconds, due)  # one step may pass two
    if not diverged:
        after = np.minimum(after, len(lines) - 1)
    lines.append(dict.fromkeys(ranking.METRICS.values(), 0.0))
    return {metric: [lines[i][name] for i in after] for metric, name in ranking.METRICS.items()}


def command_line(config: BoardConfig, training: Training) -> list[str]:
    """The keys of a training."""
    P, n, m, rate = training.cell
    arm = config.arms.get(training.arm)
    overrides = arm.overrides if arm else None
    return [
        f"experiment={training.world}",
        *(overrides or [f"algorithm={training.arm}"]),
        *config.settings,
        f"prompts_per_step={P}",
        f"rollouts_per_prompt={n}",
        f"kept_per_prompt={m}",
        f"optimizer.learning_rate={rate}",
        f"clock={training.clock}",
        f"budget.train_seconds={training.budget}",
        f"evaluation.every_seconds={training.budget / ranking.EVALUATIONS}",
        f"seed={training.seed}",
        f"run={training.run}",
        f"output_dir={config.output_dir}",
    ]


def stored(config: BoardConfig) -> dict[Training, Any]:
    """The published results, and those that were trained here."""
    results = {}
    for folder in (config.results_dir, config.output_dir):
        for line in files.read_lines(folder / "report.jsonl"):
            line["cell"] = Cell(*line["cell"])
            line.setdefault("world", "sums")  # lines of before there were others
            training = Training(**{name: line[name] for name in Training._fields})
            results[training] = line
    return results


if __name__ == "__main__":
    file_and_function = r"^([^=-][^=]*:[^=]*)$"  # by itself
    sys.argv[1:] = [re.sub(file_and_function, r"algorithm=\1", word) for word in sys.argv[1:]]
    main()
