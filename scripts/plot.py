"""Figures from result files: accuracy against training time with its interval.

    uv run scripts/plot.py figure=quickstart
    uv run scripts/plot.py figure=all results_dir=results/published
    uv run scripts/plot.py runs=checkpoints/sweep-<...> by=level    # after evaluate_run.py by=level
Writes <out_dir>/<figure>/main.png|pdf|txt (caption), length.png|pdf, curves.json; prints its path.
"""

import json

from pods.config.command import command
from pods.config.keys import Location, Text
from pods.figures.figure import FigureConfig
from pods.files import write_atomic


class PlotConfig(FigureConfig):
    out_dir: Location
    by: Text | None


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
        content = curves.to_json(series)
        if config.by:
            parts = curves.by_value(figure, config.results_dir, config.by)
            drawing.save(drawing.figure_by_value(figure, parts), out / "by")
            content["by"] = {part.title: curves.to_json(own)["series"] for part, own in parts}
        write_atomic(out / "main.txt", drawing.caption(figure, series))
        write_atomic(out / "curves.json", json.dumps(content, indent=1) + "\n")
        print(out)
    curves.finish(left_out)


if __name__ == "__main__":
    main()
