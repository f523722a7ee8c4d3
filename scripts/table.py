"""A figure with its table, and the sentences that its intervals allow, for a paper.

    uv run scripts/table.py figure=quickstart
    uv run scripts/table.py 'runs={GRPO: [a-*], PODS: [b-*]}' margin=2
Writes <out_dir>/<figure>/main.csv (numbers), main.tex (booktabs), main.png|pdf (the figure) and
main.txt, which it prints.
"""

from dataclasses import replace
from textwrap import fill

from pydantic import PositiveFloat

from pods.config.command import command
from pods.config.keys import Location, Text
from pods.figures.figure import Comparison, FigureConfig
from pods.files import write_atomic


class TableConfig(FigureConfig, Comparison):
    out_dir: Location
    margin: PositiveFloat | None
    by: Text | None


@command("table", TableConfig)
def main(config: TableConfig) -> None:
    import pandas  # --help waits for none of these

    from pods.figures import curves, drawing, paper, speedup

    figures, left_out = curves.read_all(config)
    for figure, series in figures:
        parts = [(figure, series)]
        if config.by:
            parts += curves.by_value(figure, config.results_dir, config.by)
        rows, pairs = [], []  # rows: numbers and texts of each part
        for part, own in parts:
            where = "" if part is figure else part.title
            of_part = [replace(p, where=where) for p in speedup.pairs(part, own, config)]
            ordered = sorted(own, key=lambda method: method.label != figure.baseline)
            rows.append(paper.tables(ordered, of_part, where))
            pairs += of_part
        table, texts = (pandas.concat(of_parts) for of_parts in zip(*rows, strict=True))
        texts = texts.fillna("-")  # columns that a part lacks
        accuracy = drawing.METRIC_NAMES.get(figure.metric, figure.metric).removesuffix(", %")
        caption = f"{drawing.about(figure, series)} {accuracy}. {paper.NOTE}"
        out = config.out_dir / figure.name
        drawing.save(drawing.main_figure(figure, series), out / "main")
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
