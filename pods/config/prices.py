"""The price lists that `clock=` names: YAML files with the seconds of a step on a machine."""

from pathlib import Path
from typing import Any

import yaml

from pods.config.errors import UserError
from pods.config.place import CONFIG_DIR

PRICES = CONFIG_DIR / "prices"
REQUIRED = {"fixed", "generate", "update"}


def read_prices(clock: str) -> dict[str, Any]:
    """The fields of Prices of clock=<name> or clock=<file.yaml>. Raises UserError without them."""
    file = PRICES / f"{clock}.yaml"
    if not file.is_file():
        file = Path(clock)
    if not file.is_file():
        names = ", ".join(sorted(path.stem for path in PRICES.glob("*.yaml")))
        raise UserError(
            f"clock={clock}: no such file; set measured, {names}, or a YAML file with prices"
        )
    try:
        prices = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"clock={clock}: cannot read {file} ({reason}); correct it") from None
    if not isinstance(prices, dict) or not prices.keys() >= REQUIRED:
        raise UserError(
            f"clock={clock}: {file} lacks fixed, generate or update, in seconds; "
            "--help explains them"
        )
    return {**prices, "name": clock}
