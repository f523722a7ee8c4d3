"""Which n, m and P to train with, from the recorded steps of a run or from numbers.

uv run scripts/plan.py run=<run>                           # cost and rewards of a run's steps
uv run scripts/plan.py experiment=gsm8k_qwen accuracy=.8   # the published L40S, no run
uv run scripts/plan.py cost.fixed=2 cost.generate=.01 cost.update=.05 accuracy=.6 json=true
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from pods.config.command import CONFIG_DIR, command, compose
from pods.config.errors import UserError
from pods.config.keys import Section, Text
from pods.config.prices import read_prices
from pods.runs import ledger

if TYPE_CHECKING:
    from pods.figures.planner import Cell

FOLDER = CONFIG_DIR / "planning"
COSTS = ("fixed", "round", "generate", "update")  # PODS has one round


class PlanConfig(Section):
    run: Text | None
    window: list[int] | None = Field(min_length=2, max_length=2)
    experiment: Text
    accuracy: float | None = Field(gt=0, le=1)
    rule: Literal["max_variance", "max_reward", "random", "percentile"]
    kappa: float | None = Field(gt=0)
    between: float | None = Field(ge=0)
    cells: list[list[int]] | None
    seed: int = Field(ge=0)
    output_dir: Text
    out_dir: Text
    as_json: bool = Field(alias="json")
    cost: dict[Literal[*COSTS], Annotated[float, Field(ge=0)] | None]


@command("plan", PlanConfig, FOLDER)
def main(config: PlanConfig) -> None:
    check(config)
    import pandas

    from pods.figures import drawing, planner  # a mistake waits for no scipy and no matplotlib

    cells, base, notes = predict(config)
    if not base.rate > 0:
        raise UserError(f"cells: {list(base[:3])}: no signal in it; put another first")
    verdict, name = planner.verdict(cells), config.run or config.experiment
    drawing.save(planner.heat_map(cells, base, name), Path(config.out_dir) / "plan" / name)
    table = pandas.DataFrame(cells).assign(relative=[cell.rate / base.rate for cell in cells])
    if config.as_json:
        rows = table.to_dict("records")
        plan = {"cells": rows, "best": rows[table.rate.idxmax()]}
        print(json.dumps(plan | {"verdict": verdict, "notes": notes}, indent=1))
        return
    table = table if config.cells else table.nlargest(10, "rate")
    text = table.to_string(index=False, float_format="{:.4g}".format)
    print(*notes, "", text, "", verdict, sep="\n")


def check(config: PlanConfig) -> None:
    """Raise UserError with the first value that cannot be used."""
    if (config.run is None) == (config.accuracy is None):
        raise UserError(f"accuracy={config.accuracy}: set run=<run>, or a share without a run")
    if config.run:
        ledger.find(config.output_dir, config.run)
    for cell in config.cells or []:
        if len(cell) != 3 or cell[0] < 1 or not 2 <= cell[2] <= cell[1]:
            raise UserError(f"cells: {cell} must be [P,n,m] with P >= 1 and 2 <= m <= n")


def predict(config: PlanConfig) -> tuple[list["Cell"], "Cell", list[str]]:
    """The cells, their baseline, and the source of the predictions."""
    from pods.figures import planner

    if config.run is None:
        train = compose("train", [f"experiment={config.experiment}"])
        own = planner.Cell(*(train[size] for size in planner.SIZES))
        cost = read_prices("l40s")
    else:
        own, cost, rewards = planner.read(Path(config.output_dir) / config.run, config.window)
    known = {name: value for name, value in config.cost.items() if value is not None}
    cost = cost.model_copy(update=known)

    def predicted(cell: "Cell") -> "Cell":
        sizes = (config.rule, cell.n, cell.m)
        if config.run is None:
            signal = planner.signal_of_accuracy(*sizes, config.accuracy)
        else:
            rng = np.random.default_rng([config.seed, cell.n, cell.m])
            signal = planner.signal_of_rewards(*sizes, rewards, rng)
        return cell.predicted(cost, signal, config.kappa, config.between or 0.0)

    cells = [predicted(cell) for cell in cells_of(config, own)]
    base = cells[0] if config.cells else predicted(own._replace(n=own.m))
    notes = [f"seconds a step: {cost.fixed:.3g} + {cost.generate:.3g} n P + {cost.update:.3g} m P"]
    if not min(cost.generate, cost.update) > 0:
        notes.append("the steps do not tell a rollout's seconds from the fixed ones; set cost.*")
    if config.kappa is None:
        notes.append("kappa=null: small signals are assumed, which favours large n, m and P")
    return cells, base, notes


def cells_of(config: PlanConfig, own: "Cell") -> list["Cell"]:
    """The cells asked for, or n and m in powers of two up to 4 n; other P only with known noise."""
    if config.cells:
        return [own._replace(prompts=P, n=n, m=m) for P, n, m in config.cells]
    prompts = {own.prompts} | (set() if None in (config.kappa, config.between) else {1, 2, 4, 8})
    powers = {2**k for k in range(1, 12) if 2**k <= 4 * own.n}
    ns, ms = sorted(powers - {2} | {own.n, own.m}), sorted(powers | {own.m})
    sizes = [(P, n, m) for P in sorted(prompts) for n in ns for m in ms if 2 <= m <= n]
    return [own._replace(prompts=P, n=n, m=m) for P, n, m in sizes]


if __name__ == "__main__":
    main()
