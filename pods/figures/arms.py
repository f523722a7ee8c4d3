"""What the runs of a figure were made with: unlike runs are refused, or split into arms.

Departs from the published plotting code, which averages whatever a pattern of names matches.
    uv run scripts/plot.py figure=quickstart figure.split_by=[optimizer.learning_rate]
"""

import json
from pathlib import Path

from pods.config.errors import UserError
from pods.figures.alignment import listed
from pods.figures.definition import Figure, Unlike
from pods.figures.samples import Samples
from pods.runs.results import warn

# Keys of the training config, and of the evaluation, in which the runs of one arm must agree.
LIKE = (
    "budget.train_seconds", "max_steps", "task.name", "task.source", "model.name", "model.path",
    "prompts_per_step", "optimizer.learning_rate", "repeats", "questions",
)  # fmt: skip


def arms(figure: Figure, label: str, runs: list[Samples]) -> dict[str, list[Samples]]:
    """The runs of a series, split by figure.split_by. Unlike: an arm is mixed."""
    groups: dict[tuple[str, ...], list[Samples]] = {}
    for run in runs:
        if unknown := [key for key in figure.split_by if key not in run.settings]:
            raise UserError(f"figure.split_by=[{unknown[0]}]: {run.name} has no such setting")
        values = [f"{k.rpartition('.')[2]}={run.settings[k]}" for k in figure.split_by]
        groups.setdefault(tuple(values), []).append(run)
    for group in groups.values():
        _refuse_unlike(figure, label, group)
    if len(groups) < 2:
        return {label: runs}
    return {" ".join([label, *values]): group for values, group in groups.items()}


def _refuse_unlike(figure: Figure, label: str, runs: list[Samples]) -> None:
    for key in LIKE:
        names: dict[str, list[str]] = {}
        for run in runs:
            if (value := run.settings.get(key, run)) is not run:  # null is a value
                value = Path(value).name if key == "model.path" else value  # of any folder
                names.setdefault(json.dumps(value), []).append(run.name)
        if len(names) > 1:
            found = "; ".join(f"{value} in {listed(group)}" for value, group in names.items())
            line = f"figure={figure.name}: runs of {label} differ in {key}: {found}"
            if not all("seed" in run.settings for run in runs):
                warn(f"{line}; averaged, because published files do not say why")
                continue
            raise Unlike(f"{line}; set figure.split_by=[{key}], or match fewer runs")
