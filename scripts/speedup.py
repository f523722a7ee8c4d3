"""Speed-ups from result files: every pair of a figure's arms, with intervals.

    uv run scripts/speedup.py figure=gsm8k_main results_dir=<folder>
    uv run scripts/speedup.py figure=all json=true

The threshold is fraction_of_best of the baseline's best mean accuracy; hours are grid marks, as
published. Added to the published ratio: the interpolated ratio, bootstrap intervals over runs, and
the difference of the final accuracies.
"""

import json
from dataclasses import asdict, dataclass

from pods.cli import UserError, command
from pods.figures import speedup, tables
from pods.figures.curves import load
from pods.figures.definition import Absent, FigureConfig, each
from pods.results import warn


@dataclass
class SpeedupConfig(FigureConfig):
    json: bool
    markdown: bool


@command("speedup", SpeedupConfig)
def main(config: SpeedupConfig) -> None:
    if not 0 < config.fraction_of_best <= 1:
        raise UserError(
            f"fraction_of_best={config.fraction_of_best}: must lie in (0, 1]; 0.99 in the paper"
        )
    if config.resamples < 1:
        raise UserError(f"resamples={config.resamples}: must be at least 1, e.g. 10000")
    found = each("speedup", config, compare)
    rows = [row for name, _, pairs in found for row in tables.speedup_rows(name, pairs)]
    if config.json:
        content = {
            name: asdict(headline) | {"pairs": [asdict(pair) for pair in pairs]}
            for name, headline, pairs in found
            if headline
        }
        print(json.dumps(content, indent=1))
    elif not rows:
        print("no pair of arms has results")
    elif config.markdown:
        print(f"{tables.markdown(rows)}\n\n{tables.NOTE}")
    else:
        print(f"{tables.aligned(rows)}\n{tables.NOTE}")


def compare(
    config: SpeedupConfig,
) -> tuple[str, speedup.Speedup | None, list[speedup.Speedup]]:
    """A figure's name, its headline pair (None if its YAML names none) and all pairs."""
    figure, series = config.figure, load(config.figure, config.results_dir)
    if len(series) < 2:
        raise Absent(
            f"figure={figure.name}: only {series[0].label} has results, two arms are needed"
        )
    how = (config.fraction_of_best, config.resamples, config.seed)
    headline = speedup.headline(figure, series, *how)
    if figure.baseline and headline is None:
        arms = f"{figure.baseline} or {figure.pods}"
        warn(f"figure {figure.name}: {arms} has no results; no headline speed-up")
    return figure.name, headline, speedup.pairs(series, *how)


if __name__ == "__main__":
    main()
