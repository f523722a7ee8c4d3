"""The price list that `clock=` names: the seconds of a step on a machine."""

from pathlib import Path

import yaml

from pods.config.errors import UserError
from pods.config.keys import Prices
from pods.config.mistakes import validated
from pods.config.place import CONFIG_DIR

REQUIRED = {"fixed", "generate", "update"}


def read_prices(clock: str) -> Prices:
    """Those of clock=<name of config/prices.yaml> or clock=<file.yaml>. Raises UserError."""
    table = yaml.safe_load((CONFIG_DIR / "prices.yaml").read_text())
    file = Path(clock)
    if clock not in table and not file.is_file():
        names = ", ".join(sorted(table))
        raise UserError(
            f"clock={clock}: no such file; set measured, {names}, or a YAML file with prices"
        )
    try:
        prices = table.get(clock) or yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"clock={clock}: cannot read {file} ({reason}); correct it") from None
    if not isinstance(prices, dict) or not prices.keys() >= REQUIRED:
        raise UserError(
            f"clock={clock}: {file} lacks fixed, generate or update, in seconds; "
            "--help explains them"
        )
    prices = validated(Prices, {**prices, "name": clock}, f"clock={clock}: ")
    if not any(getattr(prices, key) for key in REQUIRED):
        raise UserError(f"clock={clock}: every step is free; give {file} a price above 0")
    return prices
