"""Figures from result files: accuracy against training time with its interval.

    uv run scripts/plot.py figure=quickstart
    uv run scripts/plot.py figure=all results_dir=<folder with the published files>
Writes <out_dir>/<figure>/main.png|pdf, length.png|pdf and curves.json; prints the folder.
"""

import json
from pathlib import Path

from pods.cli import command
from pods.figures import drawing, speedup
from pods.figures.curves import load, to_json
from pods.figures.definition import each
from pods.figures.drawing import PlotConfig
from pods.files import write_atomic


@command("plot", PlotConfig)
def main(config: PlotConfig) -> None:
    each("plot", config, draw)


def draw(config: PlotConfig) -> None:
    """Read, draw and write one figure."""
    figure, series = config.figure, load(config.figure, config.results_dir)
    how = (config.fraction_of_best, config.resamples, config.seed)
    headline = speedup.headline(figure, series, *how)
    out = Path(config.out_dir) / figure.name
    drawing.save(drawing.main_figure(series, headline, config), out / "main")
    drawing.save(drawing.length_figure(series, config), out / "length")
    write_atomic(out / "curves.json", json.dumps(to_json(series), indent=1) + "\n")
    print(out)


if __name__ == "__main__":
    main()
