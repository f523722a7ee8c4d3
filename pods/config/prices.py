"""The price list that `clock=` names: the seconds of a step on a machine."""

from typing import Any

import yaml

from pods.config.errors import UserError
from pods.config.keys import Prices
from pods.config.mistakes import validated
from pods.config.paths import CONFIG_DIR

PRICES: dict[str, dict[str, float]] = yaml.safe_load((CONFIG_DIR / "_cards.yaml").read_text())[
    "prices"
]


def read_prices(clock: Any) -> Prices:
    """The prices of clock=<name of PRICES> or clock={name: mine, ...}. Raises UserError."""
    if isinstance(clock, dict):
        return validated(Prices, clock, "clock: ")
    if str(clock) not in PRICES:
        raise UserError(
            f"clock={clock}: unknown; set measured, {', '.join(sorted(PRICES))}, or prices, "
            '"{name: mine, fixed: 4.8, generate: 0.06, update: 0.1}"'
        )
    return Prices(name=clock, **PRICES[clock])
