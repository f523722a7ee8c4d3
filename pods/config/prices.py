"""The price list that `clock=` names: the seconds of a step on a machine."""

from pathlib import Path

import yaml

from pods.config.errors import UserError
from pods.config.keys import Prices
from pods.config.mistakes import one_line, validated
from pods.config.place import CONFIG_DIR


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
        values = table.get(clock) or yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = one_line(error)
        raise UserError(f"clock={clock}: cannot read {file} ({reason}); correct it") from None
    if not isinstance(values, dict):
        raise UserError(f"clock={clock}: has no prices; write fixed, generate and update into it")
    prices = validated(Prices, {**values, "name": clock}, f"clock={clock}: in the file, ")
    if prices.fixed + prices.generate + prices.update == 0:
        raise UserError(f"clock={clock}: every step is free; give {file} a price above 0")
    return prices
