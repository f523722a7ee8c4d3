"""Does an algorithm beat GRPO and PODS? Equal priced seconds, unseen seeds, each at its best sizes.

    uv run benchmarks/board.py                          # the stored results, as docs/board.md
    uv run benchmarks/board.py my_file.py:my_algorithm  # one's own against GRPO and PODS
    uv run benchmarks/board.py my_file.py:my_algorithm world=all
    uv run benchmarks/board.py stage=tune               # sizes and rates of all arms; resumes
A world is a file of config/experiment. Trainings are processes; what is stored is not repeated.
"""

import io
import json
import re
import runpy
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from benchmarks import workers
from pods import files
from pods.config.command import CONFIG_DIR, command
from pods.config.errors import UserError
from pods.config.keys import Section, Text
from pods.figures import drawing, ranking
from pods.figures.ranking import Cell
from pods.training.check import try_out

TUNING, UNSEEN = range(100), range(100, 200)  # seeds
FINALISTS = 2  # cells of an arm that are tuned on more seeds than the first


class Arm(Section):
    what: Text
    sizes: list[list[int]] | None = None  # [P, n, m] to tune; without it the arm is not tuned
    cell: Cell | None = None  # of an arm that is not tuned
    overrides: list[Text] | None = None


class BoardConfig(Section):
    algorithm: Text | None
    cell: Cell | None
    world: Text
    worlds: list[Text]
    main: list[Text]
    stage: Literal["tune", "report"]
    seeds: int = Field(ge=1, le=len(UNSEEN))
    budget: float = Field(gt=0)
    clock: Text
    jobs: int = Field(ge=1)
    output_dir: Text
    results_dir: Text
    out_dir: Text
    as_json: bool = Field(alias="json")
    settings: list[Text]
    rate: float = Field(gt=0)
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
        """The name of its folder."""
        parts = [self.world, self.arm, *self.cell, self.seed, self.budget, self.clock]
        return re.sub(r"[^\w.+-]+", "_", "-".join(map(str, parts)))


Accuracies = dict[Training, dict[str, list[float]]]  # -> at the marks, by metric


@command("board", BoardConfig, CONFIG_DIR / "benchmarks")
def main(config: BoardConfig) -> None:
    if config.stage == "tune":
        return tune(config, arms_of(config, config.world), config.world, config.seeds)
    worlds = config.worlds if config.world == "all" else [config.world]
    results = {world: compare(config, world) for world in worlds}
    if not config.algorithm:
        return
    if len(worlds) > 1:
        results["all"] = ranking.over_worlds(results)
    for world, marks in results.items():
        print(f"{world}: {ranking.sentence(config.algorithm, marks)}")
    for world, marks in results.items() if config.as_json else ():
        result = {
            "arm": config.algorithm,
            "world": world,
            "seeds": list(UNSEEN[: config.seeds]),
            "against": ranking.against_rivals(config.algorithm, marks["accuracy"]),
            "greedy": ranking.against_rivals(config.algorithm, marks["greedy"]),
        }
        print(json.dumps(result))


def arms_of(config: BoardConfig, world: str) -> list[str]:
    """One's own algorithm; without one the tuned arms in sums, elsewhere the main ones."""
    if config.algorithm:
        return [config.algorithm]
    if world != "sums":
        return config.main
    return [name for name, arm in config.arms.items() if arm.sizes]


def compare(config: BoardConfig, world: str) -> dict[str, ranking.Marks]:
    """Print the tables of a world and draw its picture; the accuracies by metric."""
    arms = dict.fromkeys([*ranking.RIVALS, *arms_of(config, world)])
    cells = {arm: cell_of(config, arm, world) for arm in arms}
    seeds = UNSEEN[: config.seeds]
    wanted = trainings(config, {arm: [cell] for arm, cell in cells.items()}, seeds, world)
    marks = ranking.marks_of(run(config, wanted), wanted)
    print(f"World {world}\n\n{ranking.text(cells, marks)}\n")
    seconds = config.budget / ranking.MARKS * np.arange(1, ranking.MARKS + 1)
    panels = {ranking.TITLES[name]: ranking.shown(marks, name) for name in ranking.METRICS}
    picture = drawing.panels(panels, seconds, f"seconds of training, priced: {config.clock}")
    drawing.save(picture, Path(config.out_dir) / f"board-{world}")
    return marks


def tune(config: BoardConfig, arms: list[str], world: str, seeds: int) -> None:
    """The sizes of each arm with the first seed; then the best one's rate, halved and doubled
    until it gets worse; then the best two cells with the other seeds."""
    first, *others = TUNING[:seeds]
    means: dict[str, dict[Cell, float]] = defaultdict(dict)
    missing = {}
    for arm in arms:
        sizes = config.arms.get(arm, config.arms["pods"]).sizes or []
        missing[arm] = [Cell(*size, config.rate) for size in sizes]
    while missing:
        wanted = trainings(config, missing, [first], world)
        results = run(config, wanted)
        for training in wanted:
            means[training.arm][training.cell] = float(np.mean(results[training]["accuracy"]))
        missing = {}
        for arm, tried in means.items():
            best = max(tried, key=tried.__getitem__)
            beside = [best._replace(rate=best.rate / 2), best._replace(rate=best.rate * 2)]
            cells = [cell for cell in beside if cell not in tried]
            if cells:
                missing[arm] = cells
    finalists = {}
    for arm, tried in means.items():
        finalists[arm] = sorted(tried, key=lambda cell: -tried[cell])[:FINALISTS]
    run(config, trainings(config, finalists, others, world))


def trainings(
    config: BoardConfig, cells: dict[str, list[Cell]], seeds: Iterable[int], world: str
) -> list[Training]:
    """Each arm at each of its cells with each seed."""
    return [
        Training(arm, cell, seed, config.budget, config.clock, world)
        for arm, own in cells.items()
        for cell in own
        for seed in seeds
    ]


def ranked(config: BoardConfig, arm: str, world: str) -> list[Cell]:
    """An arm's cells, those of most seeds first, among equals by mean accuracy in tuning; of other
    worlds, budgets and clocks where it was never tuned in these."""
    results = stored(config, "tune")
    own = [training for training in results if training.arm == arm]
    same = [training for training in own if training[3:] == (config.budget, config.clock, world)]
    means: dict[Cell, list[float]] = defaultdict(list)
    for training in same or own:
        means[training.cell].append(np.mean(results[training]["accuracy"]))
    return sorted(means, key=lambda cell: (-len(means[cell]), -np.mean(means[cell])))


def cell_of(config: BoardConfig, arm: str, world: str) -> Cell:
    """The best cell of tuning; of an arm that was not tuned its own, or that of PODS."""
    if config.cell and arm == config.algorithm:
        return config.cell
    cells = ranked(config, arm, world)
    if not cells and arm in config.arms and config.arms[arm].cell:
        return config.arms[arm].cell
    cells = cells or ranked(config, "pods", world)
    if not cells:
        raise UserError(f"algorithm={arm}: no result of tuning; run stage=tune, or set cell")
    return cells[0]


def run(config: BoardConfig, trainings: list[Training]) -> Accuracies:
    """Their results; those that are not stored are trained, and stored one by one."""
    results = stored(config, config.stage)
    missing = [training for training in trainings if training not in results]
    for training in {training.arm: training for training in missing}.values():
        try_out(command_line(config, training, training.run))  # in seconds, before any trains
    if missing:
        with workers.alone(Path(config.output_dir)):
            results = stored(config, config.stage)  # also those of a board that was waited for
            missing = [training for training in trainings if training not in results]
            train_all(config, missing, results)
    return results


def train_all(config: BoardConfig, trainings: list[Training], results: Accuracies) -> None:
    """Train, store each result and add it to `results`."""
    published, private = result_files(config, config.stage)
    own_algorithm = config.algorithm is not None and config.algorithm not in config.arms
    file = private if own_algorithm else published
    facts = {"commit": commit()}
    started = time.monotonic()
    with closing(workers.results(partial(train, config), trainings, config.jobs)) as finished:
        for count, (training, accuracies) in enumerate(finished, 1):
            results[training] = accuracies
            facts["date"] = time.strftime("%Y-%m-%d", time.gmtime())
            files.append(file, training._asdict() | accuracies | facts)
            left = (time.monotonic() - started) / count * (len(trainings) - count) / 60
            sys.stderr.write(f"{count} of {len(trainings)}: {training.run}; {left:.0f} min left\n")


def commit() -> str:
    """Of the code; -dirty with changed files other than results."""
    git = f"git -C {CONFIG_DIR.parent}"
    head = subprocess.getoutput(f"{git} rev-parse --short=12 HEAD")
    changes = subprocess.getoutput(f"{git} status --porcelain -uno -- ':!benchmarks/results'")
    return f"{head}-dirty" if changes else head


def result_files(config: BoardConfig, stage: str) -> list[Path]:
    """Results of the arms; of the trainings of commands with one's own algorithm."""
    return [Path(folder) / f"{stage}.jsonl" for folder in (config.results_dir, config.output_dir)]


def stored(config: BoardConfig, stage: str) -> Accuracies:
    """The results in the files of a stage, one a line."""
    results: Accuracies = {}
    for file in result_files(config, stage):
        for line in files.read_lines(file):
            line["cell"] = Cell(*line["cell"])
            line.setdefault("world", "sums")  # lines of before there were others
            training = Training(**{name: line[name] for name in Training._fields})
            results[training] = {name: line[name] for name in ranking.METRICS}
    return results


def command_line(config: BoardConfig, training: Training, run: str) -> list[str]:
    """The keys of a training."""
    P, n, m, rate = training.cell
    arm = config.arms.get(training.arm)
    overrides = arm.overrides if arm else None
    own = overrides or [f"algorithm={training.arm}"]
    return [
        f"experiment={training.world}",
        *own,
        *config.settings,
        f"prompts_per_step={P}",
        f"rollouts_per_prompt={n}",
        f"kept_per_prompt={m}",
        f"micro_batch_size={min(P * m, 64)}",
        f"optimizer.learning_rate={rate}",
        f"clock={training.clock}",
        f"budget.train_seconds={training.budget}",
        f"evaluation.every_seconds={training.budget / ranking.MARKS}",
        f"evaluation.split={'validation' if config.stage == 'tune' else 'test'}",
        f"seed={training.seed}",
        f"run={run}",
        f"output_dir={config.output_dir}",
    ]


def train(config: BoardConfig, training: Training) -> dict[str, list[float]]:
    """train.py in this process: accuracies at the marks, 0 from where the loss diverged; both:
    right and well formed, sampled. Raises UserError with the line of any other failure."""
    run = f"{config.stage}-{training.run}"
    errors = io.StringIO()
    diverged = False
    sys.argv = ["train.py", *command_line(config, training, run)]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            runpy.run_path(str(CONFIG_DIR.parent / "train.py"), run_name="__main__")
    except SystemExit as error:
        diverged = re.search(r"(loss|grad_norm) is (nan|inf)", errors.getvalue()) is not None
        if not diverged:
            lines = errors.getvalue().splitlines() or [f"exit code {error.code}"]
            raise UserError(f"{training.run}: {lines[-1]}") from error
    lines = files.read_lines(Path(config.output_dir) / run / "evaluations.jsonl")
    seconds = [line["train_seconds"] for line in lines]
    marks = training.budget / ranking.MARKS * np.arange(1, ranking.MARKS + 1)
    after = np.searchsorted(seconds, marks)  # one step may pass two marks
    if not diverged:
        after = np.minimum(after, len(lines) - 1)
    lines = [*lines, dict.fromkeys(ranking.METRICS.values(), 0.0) | {"entry": {"both_acc": [0.0]}}]
    results = {metric: [lines[i][name] for i in after] for metric, name in ranking.METRICS.items()}
    return results | {"both": [lines[i]["entry"]["both_acc"][0] for i in after]}


if __name__ == "__main__":
    for place, argument in enumerate(sys.argv):
        if place and re.fullmatch(r"[^=-][^=]*", argument):  # the algorithm, as a word by itself
            sys.argv[place] = f"algorithm={argument}"
    main()
