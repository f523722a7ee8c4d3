"""A run in progress in the terminal, from its metrics.jsonl alone: it disturbs no training.

uv run scripts/plot.py follow=true run=<run>
"""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pods.cli import UserError
from pods.runs import is_training, read_metrics

EVERY = 1.0  # s between two looks at the file
ROWS = 8  # text lines of a chart
CHARTS = ("all/reward_mean", "all/correctness_mean", "all/completion_length_mean")
VALUES = ("step", "train_seconds", "tokens/generated", "tokens/trained", "loss", "grad_norm")
SHARES = ("all/zero_variance_groups", "all/clipped_ratio", "kept/reward_variance")
PHASES = ("seconds/generate", "seconds/score", "seconds/select", "seconds/update")
BLOCKS = " ▁▂▃▄▅▆▇█"


def follow(output_dir: str, run: str | None) -> None:
    """Redraw until the training ends; once, where stdout is no terminal."""
    folder = find(Path(output_dir), run)
    console = Console()
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            training = is_training(folder)
            metrics = read_metrics(folder / "metrics.jsonl")
            live.update(view(folder.name, metrics, training, console.width), refresh=True)
            if not training or not console.is_terminal:
                return
            time.sleep(EVERY)


def find(output_dir: Path, run: str | None) -> Path:
    """The run's folder; of several the one whose metrics were written last."""
    pattern = f"{run}/metrics.jsonl" if run else "*/metrics.jsonl"
    files = sorted(output_dir.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not files:
        raise UserError(
            f"run={run or 'null'}: no {output_dir}/{run or '*'}/metrics.jsonl; a training writes it"
            " from its first step on, output_dir says where runs are"
        )
    return files[-1].parent


def view(run: str, metrics: list[dict[str, Any]], training: bool, width: int) -> Group:
    """Everything that is drawn: charts over all steps, then the newest values."""
    state = "training" if training else "not training"
    parts: list[Any] = [Text(f"{run}: {state}, {len(metrics)} steps", style="bold")]
    for key in CHARTS:
        values = [row[key] for row in metrics if isinstance(row.get(key), (int, float))]
        if values:
            parts.append(Text("\n".join([key, *chart(values, max(20, width - 12))])))
    return Group(*parts, _newest(metrics[-1] if metrics else {}))


def chart(values: list[float], columns: int) -> list[str]:
    """Bars of eighth blocks, one column per equal share of the steps, the scale at the left."""
    columns = min(columns, len(values))
    bounds = [i * len(values) // columns for i in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(0.0, *means), max(means)
    scale = ROWS * 8 / (high - low) if high > low else 0.0
    lines = []
    for row in range(ROWS - 1, -1, -1):
        label = high if row == ROWS - 1 else low if row == 0 else None
        cells = [BLOCKS[max(0, min(8, round((m - low) * scale) - 8 * row))] for m in means]
        lines.append(f"{'' if label is None else f'{label:.3g}':>9} {''.join(cells)}")
    return lines


def _newest(row: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("newest step", "", "of this step", "", "seconds", ""):
        table.add_column(title, no_wrap=True)
    for keys in zip(VALUES, (*SHARES, "", "", ""), (*PHASES, "", ""), strict=True):
        cells = [(key, "" if row.get(key) is None else f"{row[key]:.6g}") for key in keys]
        table.add_row(*(text for cell in cells for text in cell))
    return table
