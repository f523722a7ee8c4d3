"""A figure as a table, and the sentences that its intervals allow, for a paper.

    uv run scripts/table.py figure=quickstart
    uv run scripts/table.py 'runs={GRPO: [a-*], PODS: [b-*]}' margin=2
Writes <out_dir>/<figure>/main.csv (numbers), main.tex (booktabs), main.txt; prints the last.
"""

from textwrap import fill

from pydantic import PositiveFloat

from pods.config.command import command
from pods.config.keys import Location
from pods.figures.figure import Comparison, FigureConfig
from pods.files import write_atomic


class TableConfig(FigureConfig, Comparison):
    out_dir: Location
    margin: PositiveFloat | None


@command("table", TableConfig)
def main(config: TableConfig) -> None:
    from pods.figures import curves, drawing, paper, speedup  # pandas: --help waits for none

    figures, left_out = curves.read_all(config)
    for figure, series in figures:
        ordered = sorted(series, key=lambda method: method.label != figure.baseline)
        pairs = speedup.pairs(figure, series, config)
        table, texts = paper.tables(ordered, pairs)
        caption = f"{drawing.about(figure, series)} {paper.NOTE}"
        out = config.out_dir / figure.name
        write_atomic(out / "main.csv", table.to_csv(index=False))
        write_atomic(out / "main.tex", paper.latex(texts, caption, f"tab:{figure.name}"))
        shown = [texts.to_string(index=False), fill(caption, speedup.WIDTH)]
        shown += [fill(text, speedup.WIDTH) for text in paper.sentences(pairs, config.margin)]
        text = "\n\n".join(shown) + "\n"
        write_atomic(out / "main.txt", text)
        print(text + str(out))
    curves.finish(left_out)


if __name__ == "__main__":
    main()
