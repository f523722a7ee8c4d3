"""The seconds of a step at other sizes, from a run's finished steps or from a price list.

    uv run scripts/plan.py run=<run>                                  n and m up to 4 n of the run
    uv run scripts/plan.py run=<run> cells=[[1,64,16],[8,16,8]]
    uv run scripts/plan.py clock=l40s cells=[[1,64,16],[8,16,8]] json=true
It says what a step costs, not what it teaches: docs/planner.md.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from pods.config.command import command
from pods.config.errors import UserError
from pods.config.keys import Prices, Section, Text
from pods.config.mistakes import validated
from pods.config.prices import read_prices

if TYPE_CHECKING:
    from pods.runs.costs import Sizes


class PlanConfig(Section):
    run: Text | None
    clock: Text | None
    cells: list[list[int]] | None
    output_dir: Text
    as_json: bool = Field(alias="json")


@command("plan", PlanConfig)
def main(config: PlanConfig) -> None:
    check(config)
    import pandas  # a mistake waits for nothing

    from pods.runs.costs import Sizes, of_run

    if config.run:
        own, prices = of_run(Path(config.output_dir) / config.run)
    else:
        own, prices = None, validated(Prices, read_prices(config.clock))
    sizes = [Sizes(*cell) for cell in config.cells] if config.cells else up_to_four_n(own)
    cells = [size._asdict() | {"seconds_per_step": size.seconds(prices)} for size in sizes]
    if config.as_json:
        print(json.dumps({"cells": cells, "prices": prices.model_dump()}, indent=1))
        return
    print(
        f"seconds a step: {prices.fixed:.3g} + {prices.generate:.3g} n P + {prices.update:.3g} m P"
    )
    if not min(prices.generate, prices.update) > 0:
        print("the run's steps are too much alike to tell a rollout's seconds from the fixed ones")
    print()
    print(pandas.DataFrame(cells).to_string(index=False, float_format="{:.4g}".format))


def check(config: PlanConfig) -> None:
    """Raise UserError with the first value that cannot be used."""
    if (config.run is None) == (config.clock is None):
        raise UserError(
            f"run={config.run} clock={config.clock}: set run=<run>, or clock=l40s with "
            "cells=[[P,n,m],...]"
        )
    if config.clock and not config.cells:
        raise UserError(f"clock={config.clock}: no run says the sizes; set cells=[[P,n,m],...]")
    for cell in config.cells or []:
        if len(cell) != 3 or cell[0] < 1 or not 2 <= cell[2] <= cell[1]:
            raise UserError(f"cells: {cell} must be [P,n,m] with P >= 1 and 2 <= m <= n")


def up_to_four_n(own: "Sizes") -> list["Sizes"]:
    """The run's own sizes, and n and m in powers of two up to 4 n, at its P."""
    powers = {2**k for k in range(1, 12) if 2**k <= 4 * own.n}
    return [
        own._replace(n=n, m=m)
        for n in sorted(powers | {own.n})
        for m in sorted(powers | {own.m})
        if m <= n
    ]


if __name__ == "__main__":
    main()
