"""Figures from result files: accuracy against training time with its interval.

    uv run scripts/plot.py figure=quickstart
    uv run scripts/plot.py figure=all results_dir=<folder with the published files>
Writes <out_dir>/<figure>/main.png|pdf, length.png|pdf and curves.json; prints the folder.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from pods.cli import command
from pods.figures.curves import Absent, load, to_json
from pods.figures.definition import Figure, each
from pods.files import write_atomic
from pods.results import warn


@dataclass
class PlotConfig:
    figure: Figure
    results_dir: str
    out_dir: str
    metric: str | None
    dataset: str | None
    x: str
    band: str
    resamples: int
    seed: int
    fraction_of_best: float


@command("plot", PlotConfig)
def main(config: PlotConfig) -> None:
    for one in each("plot", config, PlotConfig):
        try:
            draw(one)
        except Absent as error:
            if config.figure.name != "all":
                raise
            warn(f"{error}; skipped")


def draw(config: PlotConfig) -> None:
    """Read, draw and write one figure."""
    from pods.figures import drawing, speedup  # here: matplotlib takes a second to import

    figure, series = config.figure, load(config.figure, config.results_dir)
    options = drawing.Options(config.x, config.band, config.resamples, config.seed)
    how = (config.fraction_of_best, config.resamples, config.seed)
    headline = speedup.headline(figure, series, *how)
    out = Path(config.out_dir) / figure.name
    drawing.save(drawing.main_figure(figure, series, headline, options), out / "main")
    drawing.save(drawing.length_figure(figure, series, options), out / "length")
    write_atomic(out / "curves.json", json.dumps(to_json(series), indent=1) + "\n")
    print(out)


if __name__ == "__main__":
    main()
