"""One method against another from result files: every pair of a figure's methods, with intervals.

uv run scripts/speedup.py figure=gsm8k_main results_dir=<folder>
uv run scripts/speedup.py figure=all json=true
uv run scripts/speedup.py figure=gsm8k_main 'runs={A: [my-grpo-*], B: [my-pods-*]}'
"""

import json
from dataclasses import asdict

from pydantic import Field

from pods.config.command import command
from pods.figures.figure import Comparison, FigureConfig


class SpeedupConfig(FigureConfig, Comparison):
    as_json: bool = Field(alias="json")


@command("speedup", SpeedupConfig)
def main(config: SpeedupConfig) -> None:
    from pods.figures import curves, speedup  # pandas and SciPy: --help waits for neither

    figures, left_out = curves.read_all(config, fewest=2, greedy=True)
    content, pairs = {}, []
    for figure, series in figures:
        of_figure = speedup.pairs(figure, series, config)
        pairs += [(figure.name, pair) for pair in of_figure]
        named = (figure.baseline, figure.pods)
        headline = next((p for p in of_figure if (p.baseline, p.pods) == named), None)
        if headline or config.runs:  # of three methods JSON has the first pair at its top
            first = asdict(headline or of_figure[0])
            content[figure.name] = first | {"pairs": [*map(asdict, of_figure)]}
    if config.as_json:
        print(json.dumps(content, indent=1))
    else:
        print(speedup.text(pairs) if pairs else "no pair of methods has results")
    curves.finish(left_out)


if __name__ == "__main__":
    main()
