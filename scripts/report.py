"""One HTML page about a run: its facts, curves, seconds and rollouts.

    uv run scripts/report.py run=<run>
The page needs no network. Methods are compared by plot.py and table.py.
"""

from pydantic import PositiveFloat

from pods.config.command import command
from pods.config.keys import Location, Section, Text
from pods.evaluation.lookup import find_run
from pods.files import write_atomic


class ReportConfig(Section):
    run: Text
    output_dir: Location
    results_dir: Location
    out_dir: Location
    max_megabytes: PositiveFloat


@command("report", ReportConfig)
def main(config: ReportConfig) -> None:
    from pods.figures import page  # pandas and matplotlib: --help waits for neither

    run = find_run(config.run, config.output_dir)
    sections = page.run_sections(config.output_dir / run, config.results_dir, config.max_megabytes)
    out = config.out_dir / f"{run}.html"
    write_atomic(out, page.page(f"PODS: {run}", sections))
    print(out)


if __name__ == "__main__":
    main()
