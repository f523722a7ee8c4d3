"""One HTML page: a run's facts, curves, seconds and rollouts, and a figure's speed-ups.

    uv run scripts/report.py run=<run>
    uv run scripts/report.py figure=quickstart
    uv run scripts/report.py 'runs={GRPO: [my-grpo-*], PODS: [my-pods-*]}'

The page needs no network. The paper shows only means over the kept rollouts.
"""

from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from pods.config.command import command, compose, typed
from pods.config.errors import UserError
from pods.config.schema import positive
from pods.figures.chosen import finish, of_runs
from pods.figures.definition import Comparison, Figure
from pods.runs.files import write_atomic


@dataclass
class ReportConfig(Comparison):
    run: str | None = MISSING
    output_dir: str = MISSING
    results_dir: str = MISSING
    out_dir: str = MISSING
    max_megabytes: float = positive()
    figure: Figure | None = None
    runs: dict[str, list[str]] = field(default_factory=dict)


@command("report", ReportConfig)
def main(config: ReportConfig) -> None:
    if config.run is None and config.figure is None and not config.runs:
        raise UserError("run=null figure=null: set run=<run>, figure=<name> or runs={A: [a-*]}")
    if config.figure is not None and config.figure.name == "all":
        raise UserError("figure=all: a page shows one figure; set figure=<name>")
    from pods.figures import curves, report, speedup

    sections, skipped, figure, run = [], [], config.figure, config.run
    if config.runs:
        axes = figure or typed(Figure, compose("figure/quickstart", None, []).figure)
        figure = of_runs(config, axes, None, chosen=figure is not None)
    if figure is not None:
        series = curves.load(figure, config.results_dir, skipped)
        pairs = speedup.pairs(figure, series, config)
        sections += report.figure_sections(figure, series, pairs, Path(config.output_dir))
    if run is not None:
        folders = (Path(config.output_dir), Path(config.results_dir))
        sections += report.run_sections(run, *folders, config.max_megabytes)
    given = {"run": run} if run else {}
    given |= {"figure": figure.name} if figure else {}
    name, words = next(iter(given.values())), " ".join(f"{k}={v}" for k, v in given.items())
    out = Path(config.out_dir) / f"{name}.html"
    write_atomic(out, report.page(f"PODS: {name}", f"made by scripts/report.py {words}", sections))
    print(out)
    finish(skipped)


if __name__ == "__main__":
    main()
