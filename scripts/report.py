"""One HTML page about a run: its facts, curves, seconds and rollouts.

    uv run scripts/report.py run=<run>
The page needs no network. Methods are compared by plot.py and table.py.
"""

from pydantic import PositiveFloat

from pods.config.command import command
from pods.config.keys import Location, Name, Section
from pods.files import write_atomic


class ReportConfig(Section):
    run: Name
    output_dir: Location
    results_dir: Location
    out_dir: Location
    max_megabytes: PositiveFloat


@command("report", ReportConfig)
def main(config: ReportConfig) -> None:
    from pods.figures import page  # pandas and matplotlib: --help waits for neither

    folder = config.output_dir / config.run
    sections = page.run_sections(folder, config.results_dir, config.max_megabytes)
    out = config.out_dir / f"{config.run}.html"
    write_atomic(out, page.page(f"PODS: {config.run}", sections))
    print(out)


if __name__ == "__main__":
    main()
