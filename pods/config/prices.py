"""The price list that `clock=` names: the seconds of a step on a machine."""

from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config.errors import UserError, one_line
from pods.config.keys import Prices
from pods.config.mistakes import validated
from pods.config.paths import CONFIG_DIR

PRICES: dict[str, dict[str, float]] = yaml.safe_load((CONFIG_DIR / "_cards.yaml").read_text())[
    "prices"
]


def read_prices(clock: str) -> Prices:
    """The prices of clock=<name of PRICES> or clock=<file.yaml>. Raises UserError."""
    file = Path(clock)
    if clock not in PRICES and not file.is_file():
        names = ", ".join(sorted(PRICES))
        raise UserError(
            f"clock={clock}: no such file; set measured, {names}, or a YAML file with prices"
        )
    try:
        # As Hydra reads a file: 1e-1 is a number, which PyYAML takes for a text.
        values = PRICES.get(clock) or OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        reason = one_line(error)
        raise UserError(f"clock={clock}: cannot read {file} ({reason}); correct it") from None
    if not isinstance(values, dict):
        raise UserError(f"clock={clock}: has no prices; write fixed, generate and update into it")
    prices = validated(Prices, {**values, "name": clock}, f"clock={clock}: in the file, ")
    if prices.fixed + prices.generate + prices.update == 0:  # budget.train_seconds would never end
        raise UserError(f"clock={clock}: every step is free; give {file} a price above 0")
    return prices
