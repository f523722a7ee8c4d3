"""Does an algorithm beat GRPO and PODS? Equal priced seconds, unseen seeds, each at its best sizes.

    uv run benchmarks/board.py                          # the stored results of world=sums
    uv run benchmarks/board.py my_file.py:my_algorithm  # one's own against GRPO and PODS
A world is a file of config/experiment or of experiment/ in benchmarks/worlds, or in the folder of
--config-dir. A training is a process of train.py; what is stored is not repeated, one that was
stopped goes on.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas
from pydantic import Field, PositiveFloat, PositiveInt

from pods import files
from pods.config.command import CONFIG_DIR, SEARCHED, command
from pods.config.errors import UserError
from pods.config.keys import Location, Section, Text
from pods.config.paths import WORLDS
from pods.figures.statistics import difference, holm
from pods.runs.folder import provenance
from pods.training.check import try_out

SEEDS = range(100, 200)  # tuning took those from 0 on
EVALUATIONS = 12  # of a training, at equal distances up to the end of the budget
RIVALS = ("grpo", "pods")
METRICS = {"accuracy": "eval/accuracy", "greedy": "eval/greedy_accuracy"}


class Cell(NamedTuple):
    """Sizes of a step, and the learning rate at its start."""

    P: int
    n: int
    m: int
    rate: float


class Setting(NamedTuple):
    """What the trainings of a comparison have in common; the budget is in seconds."""

    budget: float
    clock: str
    world: str

    @property
    def place(self) -> str:
        """The key of an arm's cell."""
        return self.world if self.clock == "l40s" else self.clock


class Training(NamedTuple):
    """One run."""

    arm: str
    cell: Cell
    seed: int
    setting: Setting

    @property
    def run(self) -> str:
        """The name of its folder, until its result is stored."""
        budget, clock, world = self.setting
        parts = [world, self.arm, *self.cell, self.seed, budget, clock]
        return re.sub(r"[^\w.+-]+", "_", "-".join(map(str, parts)))


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

    def trainings(self, arm: str, setting: Setting) -> list[Training]:
        """One for each seed at the arm's tuned cell; one's own algorithm has that of PODS."""
        cells = self.arms.get(arm, self.arms["pods"]).cells
        cell = cells.get(setting.place, cells["sums"])
        if self.cell and arm == self.algorithm:
            cell = self.cell
        return [Training(arm, cell, seed, setting) for seed in SEEDS[: self.seeds]]


Results = dict[Training, dict[str, Any]]  # a line of report.jsonl each


@command("board", BoardConfig, CONFIG_DIR / "benchmarks")
def main(config: BoardConfig) -> None:
    if len(SEARCHED) == 1:  # without --config-dir
        SEARCHED.append(CONFIG_DIR.parent / WORLDS)
    here = Setting(config.budget, config.clock, config.world)
    arms = [name for name, arm in config.arms.items() if here.place in arm.cells]
    if config.algorithm:
        arms = [config.algorithm]
    arms = [*dict.fromkeys([*RIVALS, *arms])]
    results = run(config, [training for arm in arms for training in config.trainings(arm, here)])
    rows = [
        compare(config, results, metric, arm, rival, here)
        for metric in METRICS
        for rival in RIVALS
        for arm in arms
    ]
    table = pandas.DataFrame(rows)
    files.write_atomic(config.out_dir / f"board-{config.world}.csv", table.to_csv(index=False))
    print(table.to_string(index=False, float_format="{:.3g}".format))
    if config.algorithm and config.as_json:
        own = [row for row in rows if row["arm"] == config.algorithm]
        result = {"arm": config.algorithm, "world": config.world, "seeds": [*SEEDS[: config.seeds]]}
        for name, metric in (("against", "accuracy"), ("greedy", "greedy")):
            result[name] = {
                row["minus"]: {
                    "difference": row["difference"],
                    "ci95": [row["low"], row["high"]] if config.seeds > 1 else None,
                }
                for row in own
                if row["metric"] == metric
            }
        print(json.dumps(result))


def compare(
    config: BoardConfig, results: Results, metric: str, arm: str, rival: str, here: Setting
) -> dict[str, Any]:
    """An arm minus a rival in points: accuracies averaged over the evaluations, paired by seed. The
    family of Holm's correction of p is the settings in which both have results of these seeds."""
    differences = {}
    for setting in {training.setting for training in results}:
        sides = [config.trainings(name, setting) for name in (rival, arm)]
        if all(training in results for side in sides for training in side):
            means = [[100 * np.mean(results[t][metric]) for t in side] for side in sides]
            differences[setting] = difference(*map(np.array, means), paired=True)
            if setting == here:
                mean = np.mean(means[1])
    p = {setting: result.p for setting, result in differences.items() if result.p is not None}
    low, high = differences[here].ci95 or (None, None)
    return {
        "metric": metric,
        "arm": arm,
        "mean": mean,
        "minus": rival,
        "difference": differences[here].difference,
        "low": low,
        "high": high,
        "p": holm(p).get(here),
    }


def run(config: BoardConfig, wanted: list[Training]) -> Results:
    """The results of these trainings. Those without a stored result are trained, `jobs` at a time;
    after an error no further one starts."""
    results = stored(config)
    missing = [training for training in wanted if training not in results]
    for training in {training.arm: training for training in missing}.values():
        try_out(command_line(config, training))  # in seconds, before any trains
    facts = {"commit": provenance()["git_commit"], "date": time.strftime("%F")}
    with ThreadPoolExecutor(config.jobs) as pool:
        trained = pool.map(partial(train, config), missing)  # an error cancels those that wait
        for count, (training, result) in enumerate(zip(missing, trained, strict=True), 1):
            if result:
                line = training._asdict() | training.setting._asdict() | result | facts
                del line["setting"]
                files.append(config.output_dir / "report.jsonl", line)
            # A changed algorithm must not find it done.
            shutil.rmtree(config.output_dir / training.run, ignore_errors=True)
            sys.stderr.write(f"{count} of {len(missing)}: {training.run}\n")
    return stored(config)


def train(config: BoardConfig, training: Training) -> dict[str, list[float]] | None:
    """Accuracies at the evaluations, 0 from where the loss diverged; None if they are stored
    meanwhile. Raises UserError with the last line of any other failure."""
    if training in stored(config):
        return None
    flags = [f"--config-dir={folder}" for folder in SEARCHED[1:]]  # which may hold the world
    words = [CONFIG_DIR.parent / "train.py", *flags, *command_line(config, training)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    diverged = re.search(r"(loss|grad_norm) is (nan|inf)", done.stderr)
    if done.returncode and not diverged:
        last = done.stderr.splitlines() or ["was killed; set fewer jobs"]
        raise UserError(f"{training.run}: {last[-1]}")
    lines = files.read_lines(config.output_dir / training.run / "evaluations.jsonl")
    seconds = [line["train_seconds"] for line in lines]
    due = training.setting.budget / EVALUATIONS * np.arange(1, EVALUATIONS + 1)
    after = np.searchsorted(seconds, due)  # one step may pass two
    if not diverged:
        if not lines:
            raise UserError(f"{training.run}: has no evaluation; the same command trains it again")
        after = np.minimum(after, len(lines) - 1)
    lines.append(dict.fromkeys(METRICS.values(), 0.0))
    return {metric: [lines[i][name] for i in after] for metric, name in METRICS.items()}


def command_line(config: BoardConfig, training: Training) -> list[str]:
    """The keys of a training."""
    P, n, m, rate = training.cell
    budget, clock, world = training.setting
    arm = config.arms.get(training.arm)
    overrides = arm.overrides if arm else None
    return [
        f"experiment={world}",
        *(overrides or [f"algorithm={training.arm}"]),
        *config.settings,
        f"prompts_per_step={P}",
        f"rollouts_per_prompt={n}",
        f"kept_per_prompt={m}",
        f"optimizer.learning_rate={rate}",
        f"clock={clock}",
        f"budget.train_seconds={budget}",
        f"evaluation.every_seconds={budget / EVALUATIONS}",
        f"seed={training.seed}",
        f"run={training.run}",
        f"output_dir={config.output_dir}",
    ]


def stored(config: BoardConfig) -> Results:
    """The published results, and those that were trained here."""
    results = {}
    for folder in (config.results_dir, config.output_dir):
        for line in files.read_lines(folder / "report.jsonl"):
            setting = Setting(line["budget"], line["clock"], line.get("world", "sums"))
            results[Training(line["arm"], Cell(*line["cell"]), line["seed"], setting)] = line
    return results


if __name__ == "__main__":
    file_and_function = r"^([^=-][^=]*:[^=]*)$"  # by itself
    sys.argv[1:] = [re.sub(file_and_function, r"algorithm=\1", word) for word in sys.argv[1:]]
    main()
