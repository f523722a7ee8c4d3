"""Which part of an algorithm makes it fast? Half a dozen parts in two forms each, in few cells.

    uv run benchmarks/factors.py              # effects of parts and pairs, of stored runs
    uv run benchmarks/factors.py train=true   # tune the rate of every cell, then train it: resumes
A fractional factorial (Box, Hunter and Hunter): an effect is the mean over the cells of one form
minus that over the others, and a factor that `products` names has the sign of a product of others.
"""

from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np
import pandas
from pydantic import Field

from benchmarks import board
from pods.config.command import CONFIG_DIR, command
from pods.config.keys import Text
from pods.figures import ranking, tables
from pods.figures.statistics import difference

SIZES = ("P", "n", "m")
Signs = dict[str, int]  # factor -> -1 for its first form, 1 for its second


class FactorsConfig(board.BoardConfig):
    train: bool
    factors: dict[Text, list[dict[Text, Any]]]
    products: dict[Text, list[Text]]
    tuning_seeds: int = Field(ge=1)


@command("factors", FactorsConfig, CONFIG_DIR / "benchmarks")
def main(config: FactorsConfig) -> None:
    cells = design(config)
    if config.train:
        train(config, cells)
    results = board.stored(config, "report")
    for metric, title in ranking.TITLES.items():
        by_seed: dict[int, dict[str, float]] = {}
        for training, accuracies in results.items():
            if training.arm in cells and training.world == config.world:
                mean = float(np.mean(accuracies[metric]))
                by_seed.setdefault(training.seed, {})[training.arm] = mean
        complete = [runs for runs in by_seed.values() if len(runs) == len(cells)]
        print(f"{title}, world {config.world}, {len(complete)} seeds with all {len(cells)} cells\n")
        if complete:
            values = [[runs[arm] for arm in cells] for runs in complete]
            print(table(np.array(values), cells))


def train(config: FactorsConfig, cells: dict[str, Signs]) -> None:
    """Every cell at each rate on validation questions, then at its best one on test questions."""
    grid = {}
    for arm, signs in cells.items():
        config.arms[arm] = arm_of(config, signs)
        grid[arm] = rates_of(config, signs)
    config.stage = "tune"
    seeds = board.TUNING[: config.tuning_seeds]
    board.run(config, board.trainings(config, grid, seeds, config.world))
    config.stage = "report"
    best = {}
    for arm in cells:
        best[arm] = board.ranked(config, arm, config.world)[:1]
    seeds = board.UNSEEN[: config.seeds]
    board.run(config, board.trainings(config, best, seeds, config.world))


def design(config: FactorsConfig) -> dict[str, Signs]:
    """Every combination of the factors that are no products: name of a cell -> signs."""
    free = [name for name in config.factors if name not in config.products]
    cells = {}
    for combination in product((-1, 1), repeat=len(free)):
        signs = dict(zip(free, combination, strict=True))
        for name, others in config.products.items():
            signs[name] = prod(signs[other] for other in others)
        code = ""
        for name in config.factors:
            code += "+" if signs[name] > 0 else "-"
        cells[f"parts{code}"] = signs
    return cells


def forms(config: FactorsConfig, signs: Signs) -> dict[str, Any]:
    """The values of a cell, those of all its forms together."""
    values: dict[str, Any] = {}
    for name, sign in signs.items():
        values |= config.factors[name][sign > 0]
    return values


def arm_of(config: FactorsConfig, signs: Signs) -> board.Arm:
    """The algorithm of a cell: benchmarks/parts.py with the parameters of its forms."""
    pairs = []
    for name, value in forms(config, signs).items():
        if name not in SIZES:
            pairs.append(f"{name}: {str(value).lower()}")
    overrides = [
        "algorithm=benchmarks/parts.py:parts",
        f"algorithm_kwargs={{{', '.join(pairs)}}}",
    ]
    return board.Arm(what="a cell of the design", overrides=overrides)


def rates_of(config: FactorsConfig, signs: Signs) -> list[ranking.Cell]:
    """The sizes of a cell with each learning rate."""
    values = forms(config, signs)
    sizes = [values[name] for name in SIZES]
    return [ranking.Cell(*sizes, rate) for rate in config.learning_rates]


def table(values: np.ndarray, cells: dict[str, Signs]) -> str:
    """Main effects and those of pairs in points with intervals over seeds, the largest first;
    pairs that the design cannot tell apart stand in one row. values: (seeds, cells)."""
    names = list(next(iter(cells.values())))
    columns: dict[tuple[int, ...], list[str]] = {}  # signs of an effect -> what has it
    for count in (1, 2):
        for group in combinations(names, count):
            column = []
            for signs in cells.values():
                column.append(prod(signs[name] for name in group))
            columns.setdefault(tuple(column), []).append(" x ".join(group))
    effects = {}
    for column, aliases in columns.items():
        by_seed = 2 * values @ np.array(column) / len(cells)
        effect = difference(np.zeros(len(by_seed)), by_seed, paired=True)
        effects[" = ".join(aliases)] = effect
    rows = []
    for name in sorted(effects, key=lambda name: -abs(effects[name].difference)):
        rows.append({"part": name, "effect, points": tables.points(effects[name])})
    return tables.markdown(pandas.DataFrame(rows)) + "\n"


if __name__ == "__main__":
    main()
