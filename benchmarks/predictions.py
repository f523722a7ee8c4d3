"""Does the signal order the cells that were trained? Rank correlations over stored trainings.

    uv run benchmarks/predictions.py                       # the tables, from stored predictions
    uv run benchmarks/predictions.py recorded={base: <file>}   # predict on a recording first
    uv run benchmarks/predictions.py world=hard train=true     # train what was predicted: resumes
A prediction is a line: the signal a second of one arm at one size, from rollouts that
scripts/plan.py recorded at one point of a training.
"""

from itertools import product

import numpy as np
import pandas
from pandas.core.groupby import DataFrameGroupBy
from pydantic import Field
from tqdm import tqdm

from benchmarks import board
from benchmarks.trainings import BoardConfig, Training
from pods import files
from pods.advantages import over_kept
from pods.by_name import chosen
from pods.config.command import CONFIG_DIR, command, compose, typed
from pods.config.errors import UserError
from pods.config.keys import Location, Section, Text, TrainConfig
from pods.config.mistakes import validated
from pods.config.prices import read_prices
from pods.figures import tables
from pods.figures.ranking import Cell
from pods.runs.folder import provenance
from pods.signal import compare
from pods.signal.compare import CellRanking, interval
from pods.signal.pool import Pool, load
from pods.signal.simulate import Candidate, Loss, Simulator

RESAMPLES = 2000
FEWEST_CELLS = 5  # for a rank correlation

SIZE = ["arm", "P", "n", "m"]
Size = tuple[str, int, int, int]  # of a cell


class Registered(Section):
    """What was predicted before any of it was trained."""

    worlds: list[Text]
    seeds: list[int]
    rate: float
    cells: dict[Text, list[list[int]]]


class SignalConfig(BoardConfig):
    recorded: dict[Text, Location]
    questions: list[int] = Field(min_length=1)
    rollouts: list[int] = Field(min_length=1)
    predicted: Location


class PredictionsConfig(SignalConfig):
    train: bool
    tuned: list[Text]
    registered: Registered


@command("predictions", PredictionsConfig, CONFIG_DIR / "benchmarks")
def main(config: PredictionsConfig) -> None:
    config.stage = "tune"
    for point, path in config.recorded.items():
        predict(config, point, load(path), cells_of(config))
    if config.train:
        board.run(config, registered(config))
    lines = predicted_lines(config)
    if lines.empty:
        raise UserError(f"predicted={config.predicted}: no line of world={config.world}")
    trained = accuracies(config)
    if trained.empty:
        raise UserError(f"world={config.world}: nothing was trained yet; set train=true")
    shapes = lines.groupby(["questions", "rollouts"])
    most = max(shapes.groups)
    whole = shapes.get_group(most)
    print(f"all recorded rollouts ({most[0]} x {most[1]}), mean over points\n")
    print(correlations(rates(whole), trained))
    if config.world in config.registered.worlds:
        both = accuracies(config, "both")
        print(f"\nright in the wanted format\n\n{correlations(rates(whole), both)}")
        print(f"\nby cell\n\n{by_cell(rates(whole), trained, both)}")
    by_point = whole.groupby(["point"], sort=False)
    print(f"\nby point of the training\n\n{agreement(by_point, trained)}")
    common = set.intersection(*shapes["point"].agg(set))
    if common:
        by_shape = lines[lines["point"].isin(common)].groupby(["questions", "rollouts"])
        print(f"\nby questions x rollouts, points: {', '.join(sorted(common))}\n")
        print(agreement(by_shape, trained))


def predict(config: SignalConfig, point: str, pool: Pool, cells: list[Size]) -> None:
    """Simulate the cells on a pool, and on the first of its questions and rollouts, and append the
    lines that are missing."""
    training = validated(TrainConfig, pool.facts["training"])
    prices = read_prices(config.clock)
    out = config.predicted
    facts = {"world": config.world, "point": point, "clock": config.clock}
    commit = {"commit": provenance()["git_commit"]}
    known = files.read_lines(out)
    for questions, rollouts in product(config.questions, config.rollouts):
        part = pool.first(questions, rollouts)
        simulator = Simulator(part, Loss.of(training))
        whole = simulator.whole(over_kept, prices)
        signal, signal_ci95 = compare.signal(whole)
        shape = {"questions": len(part), "rollouts": part.lengths.shape[1]}
        for arm, *sizes in tqdm(cells, f"{point} {shape}", disable=None):
            line = facts | shape | {"arm": arm, "cell": sizes}
            # A stored line has these values, and what was predicted beside them.
            if any(line.items() <= stored.items() for stored in known):
                continue
            functions = chosen(training_of(config, arm))
            own = Candidate(arm, *sizes)
            updates = simulator.updates(*functions, own, prices)
            rates = CellRanking({own: updates}, whole, own).rates[own]
            figures = {
                "rate": float(rates[0]),  # over |E r|^2
                "rate_ci95": interval(rates),
                "signal": signal,  # |E r|^2
                "signal_ci95": signal_ci95,
                "seconds": updates.seconds,
                "alive": updates.alive,
            }
            files.append(out, line | figures | commit)
            known.append(line)


def predicted_lines(config: SignalConfig) -> pandas.DataFrame:
    """What is stored of the world, and what each line is about."""
    every = files.read_lines(config.predicted)
    lines = [line for line in every if line["world"] == config.world]
    return pandas.DataFrame(line | dict(zip("Pnm", line["cell"], strict=True)) for line in lines)


def cells_of(config: PredictionsConfig) -> list[Size]:
    """Those that are registered in the world; in another one every cell of tuning."""
    if config.world in config.registered.worlds:
        return list(dict.fromkeys((one.arm, *one.cell[:3]) for one in registered(config)))
    return [cell for cell in accuracies(config).index if cell[0] in config.tuned]


def registered(config: PredictionsConfig) -> list[Training]:
    """Each registered cell with each seed, on validation questions."""
    plan = config.registered
    cells = {}
    for arm, sizes in plan.cells.items():
        cells[arm] = [Cell(*own, plan.rate) for own in sizes]
    return board.trainings(config, cells, plan.seeds, config.world)


def training_of(config: SignalConfig, arm: str) -> TrainConfig:
    """The config of an arm of the board."""
    own = config.arms[arm].overrides or [f"algorithm={arm}"]
    return typed(TrainConfig, compose("train", own))


def accuracies(config: PredictionsConfig, metric: str = "accuracy") -> pandas.Series:
    """The mean of each trained cell over the registered seeds, at that rate; in sums of the first
    seed, which all cells of tuning have, at the best of its rates. By SIZE."""
    lines = board.means(config, "tune").query(f"world == @config.world and {board.PRICES}")
    seeds = [0]
    if config.world in config.registered.worlds:
        seeds = config.registered.seeds
        lines = lines[lines["rate"] == config.registered.rate]
    lines = lines[lines["seed"].isin(seeds)]
    return lines.groupby([*SIZE, "rate"])[metric].mean().groupby(SIZE).max()


def rates(lines: pandas.DataFrame) -> pandas.Series:
    """The mean over points of the logarithm of each cell's rate, by SIZE."""
    return np.log(lines.set_index(SIZE)["rate"]).groupby(SIZE, sort=False).mean()


def matched(predicted: pandas.Series, trained: pandas.Series) -> pandas.DataFrame:
    """A row for each cell that has both, in the order of the predictions."""
    columns = {"predicted": predicted, "trained": trained.reindex(predicted.index)}
    return pandas.DataFrame(columns).dropna()


def correlations(predicted: pandas.Series, trained: pandas.Series) -> str:
    """A table: over all cells, by P and by arm."""
    cells = matched(predicted, trained)
    groups = {"all": cells}
    for P, own in cells.groupby("P"):
        groups[f"P = {P}"] = own
    groups |= dict(iter(cells.groupby("arm", sort=False)))
    rows = [row(name, own) for name, own in groups.items() if len(own) >= FEWEST_CELLS]
    return tables.markdown(pandas.DataFrame(rows))


def by_cell(predicted: pandas.Series, trained: pandas.Series, both: pandas.Series) -> str:
    """Each cell that was trained, the highest prediction first; rates relative to the last."""
    cells = matched(predicted, trained).assign(both=both)
    cells = cells.sort_values("predicted", ascending=False, kind="stable")
    relative = np.exp(cells["predicted"] - cells["predicted"].iloc[-1])
    table = {
        "cell": [" ".join(map(str, cell)) for cell in cells.index],
        "predicted": relative.map("{:.2f}".format),
        "right, %": (100 * cells["trained"]).map("{:.1f}".format),
        "right in the format, %": (100 * cells["both"]).map("{:.1f}".format),
    }
    return tables.markdown(pandas.DataFrame(table))


def agreement(groups: DataFrameGroupBy, trained: pandas.Series) -> str:
    """A row for the predictions of each group of lines."""
    rows = []
    for names, lines in groups:
        rows.append(row(" x ".join(map(str, names)), matched(rates(lines), trained)))
    return tables.markdown(pandas.DataFrame(rows))


def row(name: str, cells: pandas.DataFrame) -> dict[str, str]:
    """Spearman's correlation with an interval over cells, and where the first guess ends up."""
    x, y = cells.to_numpy().T
    chosen = np.random.default_rng(0).integers(len(cells), size=(RESAMPLES, len(cells)))
    (whole,) = spearman(x[None], y[None])
    ends = np.nanpercentile(spearman(x[chosen], y[chosen]), compare.ENDS)
    first = int(np.argmax(x))
    place = 1 + int((y > y[first]).sum())
    return {
        "": name,
        "cells": str(len(cells)),
        "Spearman": compare.spanned(whole, ends),
        "its first": " ".join(map(str, cells.index[first])),
        "in truth": f"{place}., {100 * (y[first] - y.max()):+.1f} points",
    }


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(rows,) rank correlations of two tables' rows; NaN where all values are equal."""
    one = pandas.DataFrame(x).rank(axis=1)
    other = pandas.DataFrame(y).rank(axis=1)
    return one.corrwith(other, axis=1).to_numpy()


if __name__ == "__main__":
    main()
