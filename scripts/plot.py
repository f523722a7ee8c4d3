"""Figures from result files: accuracy against training time with its interval.

    uv run scripts/plot.py figure=quickstart
    uv run scripts/plot.py figure=all results_dir=<folder with the published files>
Writes <out_dir>/<figure>/main.png|pdf, length.png|pdf and curves.json; prints the folder.
"""

import json
from pathlib import Path

from pods.config.command import command
from pods.figures import drawing, speedup
from pods.figures.chosen import each, finish
from pods.figures.curves import load, to_json
from pods.figures.drawing import PlotConfig
from pods.runs.files import write_atomic


@command("plot", PlotConfig)
def main(config: PlotConfig) -> None:
    _, skipped = each("plot", config, draw)
    finish(skipped)


def draw(config: PlotConfig, skipped: list[str]) -> None:
    """Read, draw and write one figure."""
    figure, series = config.figure, load(config.figure, config.results_dir, skipped)
    named = [arm for arm in series if arm.label in (figure.baseline, figure.pods)]
    headline = speedup.headline(figure, speedup.pairs(figure, named, config))
    out = Path(config.out_dir) / figure.name
    drawing.save(drawing.main_figure(series, headline, config), out / "main")
    drawing.save(drawing.length_figure(series, config), out / "length")
    write_atomic(out / "curves.json", json.dumps(to_json(series), indent=1) + "\n")
    print(out)


if __name__ == "__main__":
    main()
