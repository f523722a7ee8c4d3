"""Speed-ups from result files: every pair of a figure's arms, with intervals.

    uv run scripts/speedup.py figure=gsm8k_main results_dir=<folder>
    uv run scripts/speedup.py figure=all json=true

The threshold is fraction_of_best of the baseline's best mean accuracy; hours are grid marks, as
published. Added to the published ratio: the interpolated ratio, bootstrap intervals over runs, and
the difference of the final accuracies.
"""

import json
from dataclasses import dataclass
from typing import Any

from pods.cli import UserError, command
from pods.figures import speedup
from pods.figures.curves import Absent, load
from pods.figures.definition import Figure, each
from pods.figures.tables import aligned, markdown, speedup_rows
from pods.results import warn


@dataclass
class SpeedupConfig:
    figure: Figure
    results_dir: str
    metric: str | None
    dataset: str | None
    fraction_of_best: float
    resamples: int
    seed: int
    json: bool
    markdown: bool


@command("speedup", SpeedupConfig)
def main(config: SpeedupConfig) -> None:
    check(config)
    rows, content = [], {}
    for one in each("speedup", config, SpeedupConfig):
        try:
            headline, pairs = compare(one)
        except Absent as error:
            if config.figure.name != "all":
                raise
            warn(f"{error}; skipped")
            continue
        rows += speedup_rows(one.figure.name, pairs)
        if headline is not None:
            content[one.figure.name] = speedup.to_json(headline, pairs)
    print(render(config, rows, content))


def check(config: SpeedupConfig) -> None:
    if not 0 < config.fraction_of_best <= 1:
        raise UserError(
            f"fraction_of_best={config.fraction_of_best}: must lie in (0, 1]; 0.99 in the paper"
        )
    if config.resamples < 1:
        raise UserError(f"resamples={config.resamples}: must be at least 1, e.g. 10000")


def compare(config: SpeedupConfig) -> tuple[speedup.Speedup | None, list[speedup.Speedup]]:
    """The headline pair of a figure (None if its YAML names none) and all pairs."""
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
    return headline, speedup.pairs(series, *how)


def render(config: SpeedupConfig, rows: list[dict[str, str]], content: dict[str, Any]) -> str:
    if config.json:
        return json.dumps(content, indent=1)
    return markdown(rows) if config.markdown else aligned(rows)


if __name__ == "__main__":
    main()
