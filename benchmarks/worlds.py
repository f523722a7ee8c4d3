"""Does the order of the arms hold in other worlds? The plan's trainings, and what they show.

uv run benchmarks/worlds.py                # the table over worlds, of stored runs
uv run benchmarks/worlds.py tune=true      # sizes and rates of the arms, in every world
uv run benchmarks/worlds.py train=true     # the trainings of the plan that are missing
uv run benchmarks/worlds.py measure=true   # the bases, into benchmarks/results/worlds.json
"""

import hashlib
import json
import subprocess
import sys
import time
from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import pandas
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from benchmarks import board
from benchmarks.trainings import UNSEEN, BoardConfig, Training, commit
from pods import files
from pods.config.command import CONFIG_DIR, command, compose
from pods.config.keys import Section, Text
from pods.figures import drawing, ranking
from pods.models import locate

REPEATS = 16  # completions of a question, of which the dead groups of 8 follow exactly


class Block(Section):
    worlds: list[Text]
    arms: list[Text]
    clock: Text | None = None  # None: those of the board
    budget: PositiveFloat | None = None


class WorldsConfig(BoardConfig):
    tune: bool
    train: bool
    measure: bool
    tuning_seeds: PositiveInt
    skip: NonNegativeInt
    plan: list[Block] = Field(min_length=1)


@command("worlds", WorldsConfig, CONFIG_DIR / "benchmarks")
def main(config: WorldsConfig) -> None:
    if config.measure:
        return measure(config)
    if config.tune:
        tune(config)
    wanted = plan(config)
    if config.train:
        board.run(config, wanted)
    finished = board.stored(config, "report")
    print(f"{len(finished.keys() & {*wanted})} of {len(wanted)} trainings are finished\n")
    runs = pandas.DataFrame(wanted).merge(board.means(config, "report"))
    other = runs["clock"] != config.clock
    runs.loc[other, "world"] += ", " + runs["clock"]
    for metric, title in ranking.TITLES.items():
        results = ranking.differences(runs, metric)
        print(f"{title}\n\n{ranking.worlds_table(results, config.worlds)}\n")
        if metric == "accuracy":
            drawing.save(drawing.differences(results, "pods"), config.out_dir / "worlds")


def tune(config: WorldsConfig) -> None:
    """The main arms in each of the worlds of the plan, at the prices of its block; what is stored
    is not trained again."""
    for block in config.plan:
        prices = priced(config, block)
        prices.stage = "tune"
        for world in block.worlds:
            if world in config.worlds:
                board.tune(prices, config.main, world, config.tuning_seeds)


def plan(config: WorldsConfig) -> list[Training]:
    """The arms of each block in its worlds with each seed, in this order."""
    wanted = []
    for block in config.plan:
        prices = priced(config, block)
        cells = {}
        for world, arm in product(block.worlds, block.arms):
            cells[world, arm] = board.cell_of(prices, arm, world)
        for seed in UNSEEN[config.skip :][: config.seeds]:
            for (world, arm), cell in cells.items():
                wanted.append(Training(arm, cell, seed, prices.budget, prices.clock, world))
    return list(dict.fromkeys(wanted))  # blocks may overlap


def priced(config: WorldsConfig, block: Block) -> WorldsConfig:
    """The config with the clock and the budget of a block."""
    own = block.model_dump(include={"clock", "budget"}, exclude_none=True)
    return config.model_copy(update=own)


def measure(config: WorldsConfig) -> None:
    """Sample the base of every world on validation questions, and store what it can."""
    bases = {}
    for world in config.worlds:
        results = config.output_dir / "bases" / world
        line = f"evaluate_run.py run=null experiment={world} split=validation repeats={REPEATS}"
        subprocess.run([sys.executable, *line.split(), f"results_dir={results}"], check=True)
        policy = locate(compose("train", [f"experiment={world}"]).model.path)
        weights = (Path(policy) / "model.safetensors").read_bytes()
        facts = {"command": f"uv run {line}", "sha256": hashlib.sha256(weights).hexdigest()}
        bases[world] = facts | facts_of(results)
    target = config.results_dir.parent / "worlds.json"
    document = {
        "what": "the bases on 256 validation questions; shares",
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    files.write_atomic(target, json.dumps(document | bases, separators=(",", ": ")) + "\n")
    print(target)


def facts_of(results: Path) -> dict[str, object]:
    """Greedy and sampled accuracy by the run's own grader, well formed completions, and groups that
    carry no signal."""
    greedy: list[bool] = []
    sampled: list[list[bool]] = []  # (repeats, questions)
    formed: list[bool] = []
    for path in sorted(results.rglob("repeat-*.jsonl")):
        records = files.read_lines(path)
        correct = [next(iter(record["correct"].values())) for record in records]
        if path.parent.name.endswith("greedy"):
            greedy = correct
        else:
            sampled.append(correct)
            formed += [record["well_formed"] for record in records]
    counts = np.sum(sampled, axis=0)  # of a question
    return {
        "greedy": float(np.mean(greedy)),
        "sampled": float(np.mean(sampled)),
        "well_formed": float(np.mean(formed)),
        "dead": {
            str(n): {"solved": alike(counts, n), "unsolved": alike(REPEATS - counts, n)}
            for n in (8, 16)
        },
        "correct": counts.tolist(),
    }


def alike(counts: np.ndarray, n: int) -> float:
    """The share of groups of n that have only this kind, of which a question has so many of 16."""
    return float(np.mean([comb(count, n) / comb(REPEATS, n) for count in counts.tolist()]))


if __name__ == "__main__":
    main()
