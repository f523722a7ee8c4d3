"""Does an algorithm beat GRPO and PODS? Equal priced seconds, unseen seeds, each at its best sizes.

    uv run benchmarks/board.py                          # the stored results, as docs/board.md
    uv run benchmarks/board.py my_file.py:my_algorithm  # one's own against GRPO and PODS
    uv run benchmarks/board.py my_file.py:my_algorithm world=all
    uv run benchmarks/board.py stage=tune               # sizes and rates of all arms; resumes
A world is a file of config/experiment, or in experiment/ of the folder of --config-dir. Trainings
are processes; what is stored is not repeated.
"""

import json
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas

from benchmarks import workers
from benchmarks.trainings import (
    TUNING,
    UNSEEN,
    BoardConfig,
    Training,
    command_line,
    commit,
    folder_of,
    train,
)
from pods import files
from pods.config.command import CONFIG_DIR, SEARCHED, command
from pods.config.errors import UserError
from pods.figures import drawing, ranking
from pods.figures.ranking import Cell
from pods.training.check import try_out

PRICES = "budget == @config.budget and clock == @config.clock"  # of a table of trainings
FINALISTS = 2  # cells of an arm that are tuned on more seeds than the first

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
    """One's own algorithm; without one all arms in sums, elsewhere the main ones."""
    if config.algorithm:
        return [config.algorithm]
    if world != "sums":
        return config.main
    return list(config.arms)


def compare(config: BoardConfig, world: str) -> dict[str, ranking.Marks]:
    """Print the tables of a world and draw its picture; the accuracies by metric."""
    arms = dict.fromkeys([*ranking.RIVALS, *arms_of(config, world)])
    cells = {arm: cell_of(config, arm, world) for arm in arms}
    seeds = UNSEEN[: config.seeds]
    wanted = trainings(config, {arm: [cell] for arm, cell in cells.items()}, seeds, world)
    results = run(config, wanted)
    marks: dict[str, ranking.Marks] = defaultdict(dict)
    for metric, arm in product(ranking.METRICS, arms):
        marks[metric][arm] = np.array(
            [results[training][metric] for training in wanted if training.arm == arm]
        )
    print(f"World {world}\n\n{ranking.text(cells, marks)}\n")
    seconds = config.budget / ranking.MARKS * np.arange(1, ranking.MARKS + 1)
    panels = {ranking.TITLES[name]: ranking.shown(marks, name) for name in ranking.METRICS}
    picture = drawing.panels(panels, seconds, f"seconds of training, priced: {config.clock}")
    drawing.save(picture, config.out_dir / f"board-{world}")
    return marks


def tune(config: BoardConfig, arms: list[str], world: str, seeds: int) -> None:
    """The sizes of each arm with the first seed; then the best one's rate, halved and doubled
    until it gets worse; then the best two cells with the other seeds."""
    first, *others = TUNING[:seeds]
    scores: dict[str, dict[Cell, float]] = defaultdict(dict)
    missing = {}
    for arm in arms:
        sizes = config.arms.get(arm, config.arms["pods"]).sizes
        missing[arm] = [Cell(*size, config.rate) for size in sizes]
    while missing:
        wanted = trainings(config, missing, [first], world)
        results = run(config, wanted)
        for training in wanted:
            scores[training.arm][training.cell] = float(np.mean(results[training]["accuracy"]))
        missing = {}
        for arm, tried in scores.items():
            best = max(tried, key=tried.__getitem__)
            beside = [best._replace(rate=best.rate / 2), best._replace(rate=best.rate * 2)]
            cells = [cell for cell in beside if cell not in tried]
            if cells:
                missing[arm] = cells
    finalists = {
        arm: sorted(tried, key=tried.__getitem__, reverse=True)[:FINALISTS]
        for arm, tried in scores.items()
    }
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
    """An arm's cells, those of most seeds first, among equals by mean accuracy in tuning: in this
    world, else in sums; with this budget and clock, else with any."""
    own = means(config, "tune").query("arm == @arm")
    for place in ("world == @world", "world == 'sums'", PRICES):
        narrower = own.query(place)
        if len(narrower):
            own = narrower
    cells = own.groupby("cell")["accuracy"].agg(["size", "mean"])
    return list(cells.sort_values(["size", "mean"], ascending=False).index)


def cell_of(config: BoardConfig, arm: str, world: str) -> Cell:
    """The best cell of tuning; of an arm that was not tuned that of PODS. One that was not tuned in
    this world at these prices has the cell of the arm that `cells_of` names, if it has that."""
    if config.cell and arm == config.algorithm:
        return config.cell
    here = means(config, "tune").query(f"arm == @arm and world == @world and {PRICES}")
    if here.empty and arm in config.arms and config.arms[arm].cells_of:
        return cell_of(config, config.arms[arm].cells_of, world)
    cells = ranked(config, arm, world) or ranked(config, "pods", world)
    if not cells:
        raise UserError(f"algorithm={arm}: no result of tuning; run stage=tune, or set cell")
    return cells[0]


def run(config: BoardConfig, trainings: list[Training]) -> Accuracies:
    """Their results; those that are not stored are trained, and stored one by one."""
    results = stored(config, config.stage)
    missing = [training for training in trainings if training not in results]
    for training in {training.arm: training for training in missing}.values():
        try_out(command_line(config, training))  # in seconds, before any trains
    if missing:
        with workers.alone(config.output_dir):
            results = stored(config, config.stage)  # also those of a board that was waited for
            train_all(config, [training for training in trainings if training not in results])
        results = stored(config, config.stage)
    return results


def train_all(config: BoardConfig, trainings: list[Training]) -> None:
    """Train, and store each result."""
    published, private = result_files(config, config.stage)
    own_algorithm = config.algorithm and config.algorithm not in config.arms
    file = private if own_algorithm else published
    facts = {"commit": commit()}
    started = time.monotonic()
    job = partial(train, config, SEARCHED[1:])
    with closing(workers.results(job, trainings, config.jobs)) as finished:
        for count, (training, accuracies) in enumerate(finished, 1):
            facts["date"] = time.strftime("%Y-%m-%d", time.gmtime())
            files.append(file, training._asdict() | accuracies | facts)
            shutil.rmtree(folder_of(config, training))  # a changed algorithm must not find it done
            left = (time.monotonic() - started) / count * (len(trainings) - count) / 60
            sys.stderr.write(f"{count} of {len(trainings)}: {training.run}; {left:.0f} min left\n")


def result_files(config: BoardConfig, stage: str) -> list[Path]:
    """Results of the arms; of the trainings of commands with one's own algorithm."""
    return [folder / f"{stage}.jsonl" for folder in (config.results_dir, config.output_dir)]


def stored(config: BoardConfig, stage: str) -> Accuracies:
    """The results in the files of a stage, one a line."""
    results: Accuracies = {}
    for file in result_files(config, stage):
        for line in files.read_lines(file):
            line["cell"] = Cell(*line["cell"])
            line.setdefault("world", "sums")  # lines of before there were others
            training = Training(**{name: line[name] for name in Training._fields})
            results[training] = {name: line[name] for name in ranking.TITLES if name in line}
    return results


def means(config: BoardConfig, stage: str) -> pandas.DataFrame:
    """A row for each stored training: its fields, those of its cell, and its mean accuracies."""
    rows = []
    for training, accuracies in stored(config, stage).items():
        sizes = training.cell._asdict()
        rows.append(training._asdict() | sizes | {k: np.mean(x) for k, x in accuracies.items()})
    return pandas.DataFrame(rows, columns=[*Training._fields, *Cell._fields, *ranking.TITLES])


if __name__ == "__main__":
    for place, argument in enumerate(sys.argv):
        if place and re.fullmatch(r"[^=-][^=]*:[^=]*", argument):  # file and function, by itself
            sys.argv[place] = f"algorithm={argument}"
            break  # Hydra refuses a second one
    main()
