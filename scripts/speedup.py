"""One arm against another from result files: every pair of a figure's arms, with intervals.

    uv run scripts/speedup.py figure=gsm8k_main results_dir=<folder>
    uv run scripts/speedup.py figure=all format=json
    uv run scripts/speedup.py 'runs={A: [my-grpo-*], B: [my-pods-*]}'

Departs from the paper: beside its ratio stand comparisons that hold with few runs.
"""

import json
from dataclasses import asdict
from typing import Literal

from pydantic import Field

from pods.config.command import command
from pods.figures import curves, speedup, tables
from pods.figures.figure import Absent, Figure, FigureConfig, Note, finish, for_each
from pods.figures.speedup import Speedup


class SpeedupConfig(FigureConfig):
    format: Literal["table", "markdown", "latex", "json"]
    as_json: bool = Field(alias="json")


@command("speedup", SpeedupConfig)
def main(config: SpeedupConfig) -> None:
    def compare(figure: Figure) -> tuple[tuple[Figure, list[Speedup]], list[Note]]:
        series, notes = curves.read(figure, config.results_dir)
        if len(series) < 2:
            text = f"figure={figure.name}: only {series[0].label} has results"
            raise Absent(f"{text}, two arms are needed", notes)
        pairs = speedup.pairs(figure, series, config)
        if figure.baseline and speedup.headline(figure, pairs) is None:
            arms = f"{figure.baseline} or {figure.pods}"
            text = f"figure {figure.name}: {arms} has no results; no headline speed-up"
            notes.append(Note(text))
        return (figure, pairs), notes

    compared, left_out = for_each(config, compare)
    if config.as_json or config.format == "json":
        content = {
            figure.name: asdict(headline) | {"pairs": [asdict(pair) for pair in pairs]}
            for figure, pairs in compared
            if (headline := speedup.headline(figure, pairs))
        }
        print(json.dumps(content, indent=1))
    elif every := [(figure.name, pair) for figure, pairs in compared for pair in pairs]:
        print(tables.text(every, config.format))
    else:
        print("no pair of arms has results")
    finish(left_out)


if __name__ == "__main__":
    main()
