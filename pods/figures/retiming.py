"""Recorded steps on another machine's time axis: fixed + generated + trained rollouts, in seconds.

What is learned in a step does not depend on the machine, its seconds do. The cost files are those
of the planner (config/planning/cost).
    uv run scripts/plot.py figure=quickstart time=l40s
    uv run scripts/speedup.py figure=quickstart time=my_card.yaml
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods.config.command import CONFIG_DIR, typed
from pods.config.errors import UserError
from pods.config.schema import at_least
from pods.figures.definition import MEASURED, Figure
from pods.figures.planner import Cell, Costs
from pods.figures.samples import Samples

COSTS = CONFIG_DIR / "planning" / "cost"
SIZES = ("prompts_per_step", "rollouts_per_prompt", "kept_per_prompt", "updates_per_generation")
MARKS = 12  # of the longest run


@dataclass
class Cost:
    """Seconds of a machine: of a step, of each prompt, generated rollout and trained rollout."""

    fixed: float = at_least(0)
    generate: float = at_least(0)
    update: float = at_least(0)
    prompt: float = 0.0

    def of(self, prompts: int, n: int, m: int) -> float:
        """Seconds of a step with P prompts, n rollouts and m kept of each."""
        costs = Costs(self.fixed, self.generate, self.update)
        return costs.of(Cell(prompts, n, m)) + self.prompt * prompts


def retime(figure: Figure, runs: list[Samples]) -> None:
    """Put runs and figure on the time axis of figure.time, in place, and name it in the title.

    Marks are as far apart as the slowest run's, so that every run has a sample near each.
    """
    if figure.time == MEASURED or not runs:
        return
    cost, name = read(figure.time), Path(figure.time).stem
    for run in runs:
        sizes = [run.settings.get(size) for size in SIZES]
        if None in sizes[:3]:
            raise UserError(
                f"time={figure.time}: {run.name} has no n, m and prompts a step in its .meta.json;"
                " only runs of this suite can be re-timed, set time=measured"
            )
        if {run.settings.get(key, "none") for key in ("plan", "resample.name")} != {"none"}:
            raise UserError(
                f"time={figure.time}: {run.name} has steps of several sizes (plan=auto, resample=);"
                " set time=measured"
            )
        seconds = cost.of(*sizes[:3]) / (sizes[3] or 1)
        run.quantities["seconds"] = seconds * run.quantities["steps"]
        run.measured = run.simulated = True
        run.expected_until = float(run.quantities["seconds"].max())
    end = max(run.expected_until for run in runs)
    gaps = [float(np.diff(run.quantities["seconds"]).max(initial=0)) for run in runs]
    figure.grid_seconds = max(end / MARKS, *gaps)
    figure.budget_seconds = figure.grid_seconds * math.ceil(end / figure.grid_seconds)
    figure.time_unit = "hours" if end >= 7200 else "minutes"
    figure.title = f"{figure.title}; time simulated: {name}"
    for run in runs:
        run.reach = figure.grid_seconds / 2


def read(name: str) -> Cost:
    """A cost of config/planning/cost or of a YAML file. Raises UserError with what is wrong."""
    file = Path(name) if name.endswith((".yaml", ".yml")) else COSTS / f"{name}.yaml"
    if not file.is_file():
        known = [path.stem for path in sorted(COSTS.glob("*.yaml")) if path.stem != MEASURED]
        raise UserError(
            f"time={name}: must be {MEASURED}, one of {', '.join(known)}, or a YAML file with "
            "fixed, generate and update (seconds)"
        )
    try:
        return typed(Cost, OmegaConf.load(file))
    except (UserError, OmegaConfBaseException, yaml.YAMLError, OSError, ValueError) as error:
        raise UserError(f"time={name}: {str(error).splitlines()[0]}") from None
