"""Figures from result files: accuracy against training time with its interval.

    uv run scripts/plot.py figure=quickstart
    uv run scripts/plot.py figure=all results_dir=results/published
Writes <out_dir>/<figure>/main.png|pdf|txt (caption), length.png|pdf, curves.json; prints its path.
"""

import json

from pods.config.command import command
from pods.config.keys import Location
from pods.figures.figure import FigureConfig
from pods.files import write_atomic


class PlotConfig(FigureConfig):
    out_dir: Location


@command("plot", PlotConfig)
def main(config: PlotConfig) -> None:
    from pods.figures import curves, drawing  # pandas and matplotlib: --help waits for neither

    figures, left_out = curves.read_all(config)
    for figure, series in figures:
        out = config.out_dir / figure.name
        if len(series) > 1:
            picture = drawing.main_figure(figure, series)
        else:
            lines = curves.by_both(figure, series, config.results_dir)
            picture = drawing.single_figure(figure, lines)
        drawing.save(picture, out / "main")
        drawing.save(drawing.length_figure(figure, series), out / "length")
        write_atomic(out / "main.txt", drawing.caption(figure, series))
        write_atomic(out / "curves.json", json.dumps(curves.to_json(series), indent=1) + "\n")
        print(out)
    curves.finish(left_out)


if __name__ == "__main__":
    main()
