"""Which part of an algorithm makes it fast? Half a dozen parts in two forms each, in few cells.

    uv run benchmarks/factors.py              # effects of parts and pairs, of stored runs
    uv run benchmarks/factors.py recorded={base: <file>}   # with what the signal predicts
    uv run benchmarks/factors.py train=true   # tune the rate of every cell, then train it: resumes
    uv run benchmarks/factors.py learning_rates=[2e-3]   # all cells at one rate
A fractional factorial (Box, Hunter and Hunter): an effect is the mean over the cells of one form
minus that over the others, and a factor that `products` names has the sign of a product of others.
"""

from itertools import combinations, product
from typing import Any

import numpy as np
import pandas
from pydantic import Field, PositiveFloat, PositiveInt

from benchmarks import board, predictions
from benchmarks.trainings import TUNING, UNSEEN, Arm
from pods.config.command import CONFIG_DIR, command
from pods.config.keys import Text
from pods.figures import ranking, tables
from pods.figures.statistics import difference
from pods.signal.pool import load

SIZES = ("P", "n", "m")
Design = pandas.DataFrame  # (cells, factors) -1 for the first form of a factor, 1 for its second


class FactorsConfig(predictions.SignalConfig):
    train: bool
    factors: dict[Text, list[dict[Text, Any]]]
    products: dict[Text, list[Text]]
    learning_rates: list[PositiveFloat] = Field(min_length=1)
    tuning_seeds: PositiveInt


@command("factors", FactorsConfig, CONFIG_DIR / "benchmarks")
def main(config: FactorsConfig) -> None:
    cells = design(config)
    sizes = []
    for arm, signs in cells.iterrows():
        config.arms[arm] = arm_of(config, signs)
        sizes.append((arm, *sizes_of(config, signs)))
    for point, path in config.recorded.items():
        predictions.predict(config, point, load(path), sizes)
    if config.train:
        train(config, cells)
    lines = predictions.predicted_lines(config)
    predicted = None
    if len(lines):
        predicted = predictions.rates(lines).reindex(sizes)
    for metric in ranking.METRICS:
        values = complete(config, metric, cells)
        print(f"{ranking.TITLES[metric]}, world {config.world}, seeds: {len(values)}\n")
        if len(values):
            print(table(values, cells, predicted))
            if predicted is not None and len(predicted) >= predictions.FEWEST_CELLS:
                trained = pandas.Series(values.mean(axis=0), predicted.index)
                print(f"{predictions.correlations(predicted, trained)}\n")


def complete(config: FactorsConfig, metric: str, cells: Design) -> np.ndarray:
    """(seeds, cells) mean accuracies on test questions, at the best of a cell's rates in tuning; of
    seeds with all cells."""
    lines = board.means(config, "report").query(f"world == @config.world and {board.PRICES}")
    by_cell = lines.pivot(index="seed", columns=["arm", "cell"], values=metric)
    return by_cell.reindex(columns=best_cells(config, cells)).dropna().to_numpy()


def train(config: FactorsConfig, cells: Design) -> None:
    """Every cell at each rate on validation questions, then at its best one on test questions."""
    grid = {arm: rates_of(config, signs) for arm, signs in cells.iterrows()}
    config.stage = "tune"
    seeds = TUNING[: config.tuning_seeds]
    board.run(config, board.trainings(config, grid, seeds, config.world))
    config.stage = "report"
    best = {arm: [cell] for arm, cell in best_cells(config, cells)}
    seeds = UNSEEN[: config.seeds]
    board.run(config, board.trainings(config, best, seeds, config.world))


def best_cells(config: FactorsConfig, cells: Design) -> list[tuple[str, ranking.Cell | None]]:
    """Each arm with its cell at the best of its rates in tuning; None where it was never tuned."""
    best = []
    for arm in cells.index:
        every = board.ranked(config, arm, config.world)
        rated = (cell for cell in every if cell.rate in config.learning_rates)
        best.append((arm, next(rated, None)))
    return best


def design(config: FactorsConfig) -> Design:
    """Every combination of the factors that are no products, by the name of its cell."""
    free = [name for name in config.factors if name not in config.products]
    cells = pandas.DataFrame(product((-1, 1), repeat=len(free)), columns=free)
    for name, others in config.products.items():
        cells[name] = cells[others].prod(axis=1)
    cells = cells[list(config.factors)]
    cells.index = "parts" + cells.map({-1: "-", 1: "+"}.get).sum(axis=1)
    return cells


def forms(config: FactorsConfig, signs: pandas.Series) -> dict[str, Any]:
    """The values of a cell, those of all its forms together."""
    values: dict[str, Any] = {}
    for name, sign in signs.items():
        values |= config.factors[name][sign > 0]
    return values


def arm_of(config: FactorsConfig, signs: pandas.Series) -> Arm:
    """The algorithm of a cell: benchmarks/parts.py with the parameters of its forms."""
    pairs = []
    for name, value in forms(config, signs).items():
        if name not in SIZES:
            pairs.append(f"{name}: {str(value).lower()}")
    overrides = [
        "algorithm=benchmarks/parts.py:parts",
        f"algorithm_kwargs={{{', '.join(pairs)}}}",
    ]
    return Arm(what="a cell of the design", sizes=[], overrides=overrides)


def sizes_of(config: FactorsConfig, signs: pandas.Series) -> list[int]:
    """P, n and m of a cell."""
    values = forms(config, signs)
    return [values[name] for name in SIZES]


def rates_of(config: FactorsConfig, signs: pandas.Series) -> list[ranking.Cell]:
    """The sizes of a cell with each learning rate."""
    return [ranking.Cell(*sizes_of(config, signs), rate) for rate in config.learning_rates]


def table(values: np.ndarray, cells: Design, predicted: pandas.Series | None = None) -> str:
    """Main effects and those of pairs in points with intervals over seeds, the largest first;
    pairs that the design cannot tell apart stand in one row. values: (seeds, cells); predicted:
    (cells,) logarithms of the signal a second, of which an effect is a factor."""
    columns: dict[tuple[int, ...], list[str]] = {}  # signs of an effect -> what has it
    for group in [*combinations(cells, 1), *combinations(cells, 2)]:
        column = cells[list(group)].prod(axis=1)
        columns.setdefault(tuple(column), []).append(" x ".join(group))
    effects = []
    for column, aliases in columns.items():
        contrast = 2 * np.array(column) / len(cells)
        by_seed = values @ contrast
        effect = difference(np.zeros(len(by_seed)), by_seed, paired=True)
        row = {"part": " = ".join(aliases), "effect, points": tables.points(effect)}
        if predicted is not None:
            row["signal a second, predicted"] = f"x {np.exp(predicted @ contrast):.2f}"
        effects.append((abs(effect.difference), row))
    effects.sort(key=lambda pair: -pair[0])
    return tables.markdown(pandas.DataFrame(row for _, row in effects)) + "\n"


if __name__ == "__main__":
    main()
