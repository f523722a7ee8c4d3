"""One HTML page: a run's facts, curves, seconds and rollouts, or several methods side by side.

    uv run scripts/report.py run=<run>
    uv run scripts/report.py figure=quickstart
    uv run scripts/report.py figure=quickstart 'runs={GRPO: [my-grpo-*], PODS: [my-pods-*]}'
The page needs no network.
"""

from pydantic import PositiveFloat

from pods.config.command import command
from pods.config.errors import UserError
from pods.config.keys import Location, Name
from pods.figures.figure import Comparison, FigureConfig
from pods.files import write_atomic


class ReportConfig(FigureConfig, Comparison):
    run: Name | None
    output_dir: Location
    out_dir: Location
    max_megabytes: PositiveFloat


@command("report", ReportConfig)
def main(config: ReportConfig) -> None:
    from pods.figures import curves, drawing, page, speedup  # pandas and matplotlib, after --help

    if not (config.run or config.figure or config.runs):
        raise UserError("run=null figure=null: set run=<run>, figure=<name> or runs={A: [a-*]}")
    if config.figure and config.figure.name == "all":
        raise UserError("figure=all: a page shows one figure; set figure=<name>")
    sections: list[page.PageSection] = []
    left_out: list[str] = []
    if config.figure or config.runs:
        drawable, left_out = curves.read_all(config, greedy=True)
        for figure, series in drawable:
            pairs = speedup.pairs(figure, series, config)
            picture = drawing.svg(drawing.main_figure(figure, series))
            caption = drawing.caption(figure, series)
            sections.append({"title": figure.title, "note": caption, "picture": picture})
            if pairs:
                for title, note, row in speedup.TABLES:
                    rows = [row(figure.name, pair) for pair in pairs]
                    sections.append({"title": title, "note": note, "rows": rows})
        methods = {method.label: method.runs for method in series}
        sections += page.step_sections(methods, config.output_dir, config.results_dir)
    if config.run:
        folder = config.output_dir / config.run
        sections += page.run_sections(folder, config.results_dir, config.max_megabytes)
    name = config.run or ("runs" if config.runs else config.figure.name)
    out = config.out_dir / f"{name}.html"
    write_atomic(out, page.page(f"PODS: {name}", sections))
    print(out)
    curves.finish(left_out)


if __name__ == "__main__":
    main()
