"""One arm against another from result files: every pair of a figure's arms, with intervals.

    uv run scripts/speedup.py figure=gsm8k_main results_dir=<folder>
    uv run scripts/speedup.py figure=all format=json
    uv run scripts/speedup.py 'runs={A: [my-grpo-*], B: [my-pods-*]}'

Departs from the paper: beside its ratio stand comparisons that hold with few runs.
"""

import json
from dataclasses import asdict, dataclass

from omegaconf import MISSING

from pods.config.command import command
from pods.config.schema import one_of
from pods.figures import speedup, tables
from pods.figures.chosen import each, finish
from pods.figures.curves import load
from pods.figures.definition import Absent, FigureConfig
from pods.runs.results import warn


@dataclass
class SpeedupConfig(FigureConfig):
    format: str = one_of("table", "markdown", "latex", "json")
    json: bool = MISSING


@command("speedup", SpeedupConfig)
def main(config: SpeedupConfig) -> None:
    found, skipped = each("speedup", config, compare)
    everything = [(name, pair) for name, _, pairs in found for pair in pairs]
    if config.json or config.format == "json":
        content = {
            name: asdict(headline) | {"pairs": [asdict(pair) for pair in pairs]}
            for name, headline, pairs in found
            if headline
        }
        print(json.dumps(content, indent=1))
    elif not everything:
        print("no pair of arms has results")
    else:
        print(tables.text(everything, config.format))
    finish(skipped)


def compare(
    config: SpeedupConfig, skipped: list[str]
) -> tuple[str, speedup.Speedup | None, list[speedup.Speedup]]:
    """A figure's name, its headline pair (None if its YAML names none) and all pairs."""
    figure, series = config.figure, load(config.figure, config.results_dir, skipped)
    if len(series) < 2:
        raise Absent(
            f"figure={figure.name}: only {series[0].label} has results, two arms are needed"
        )
    pairs = speedup.pairs(figure, series, config)
    headline = speedup.headline(figure, pairs)
    if figure.baseline and headline is None:
        arms = f"{figure.baseline} or {figure.pods}"
        warn(f"figure {figure.name}: {arms} has no results; no headline speed-up")
    return figure.name, headline, pairs


if __name__ == "__main__":
    main()
