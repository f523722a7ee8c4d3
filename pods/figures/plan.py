"""What scripts/plan.py knows before it compares cells: costs, signal and noise, from a run's
metrics and ledger, or from numbers alone.

config/planning/plan.yaml explains the keys.
"""

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from omegaconf import MISSING, OmegaConf

from pods.config import saved
from pods.config.command import CONFIG_DIR, compose, typed
from pods.config.errors import UserError
from pods.config.keys import TrainConfig
from pods.config.schema import at_least, one_of, positive
from pods.figures import planner
from pods.figures.planner import Cell, Costs, Knowledge, Steps
from pods.rules import RULES, Batch
from pods.runs import ledger
from pods.runs.folder import read_metrics

FOLDER = CONFIG_DIR / "planning"
PHASES = {"generate": ("generate",), "score": ("score", "select"), "update": ("update",)}
HIDDEN = 1e-3  # of kappa: a lower end below it says that the noise can hide the signal
NORMS = [f"gradient_noise/{part}" for part in ("half", "prompt", "step")]


@dataclass
class Cost:
    fixed: float | None = at_least(0)
    generate: float | None = positive()
    update: float | None = positive()


@dataclass
class PlanConfig:
    run: str | None = MISSING
    window: list[int] | None = MISSING
    timed_with: list[str] = MISSING
    experiment: str = MISSING
    accuracy: float | None = MISSING
    rule: str | None = one_of(*RULES)
    signal: str = one_of("total", "correctness")
    lr: str = one_of("tuned", "fixed")
    kappa: float | None = positive()
    between: float | None = at_least(0)
    cells: list[list[int]] | None = MISSING
    resamples: int = positive()
    seed: int = at_least(0)
    output_dir: str = MISSING
    out_dir: str = MISSING
    json: bool = MISSING
    cost: Cost = field(default_factory=Cost)


def check(config: PlanConfig) -> None:
    """Raise UserError with the first value that cannot be used."""
    p = config.accuracy
    if config.run is None and (p is None or not 0 < p < 1):
        raise UserError(f"accuracy={p}: must lie between 0 and 1; set it, or run=<run>")
    if config.run is not None and p is not None:
        raise UserError(f"accuracy={p}: is measured in run={config.run}; remove one of the two")
    if config.window is not None and len(config.window) != 2:
        raise UserError(f"window={config.window}: must be two steps, e.g. [1,100]")
    for cell in config.cells or []:
        if len(cell) != 3 or cell[0] < 1 or not 2 <= cell[2] <= cell[1]:
            raise UserError(f"cells: {cell} must be [P,n,m] with P >= 1 and 2 <= m <= n")


def from_numbers(config: PlanConfig) -> Knowledge:
    """The experiment's sizes with the given costs, or those of the published L40S."""
    overrides = [f"experiment={config.experiment}"]
    trained = typed(TrainConfig, compose("train", TrainConfig, overrides))
    given, origin = asdict(config.cost), "as given"
    if all(value is None for value in given.values()):
        given, origin = OmegaConf.load(FOLDER / "cost" / "l40s.yaml"), "published, one L40S"
    for name, value in given.items():
        if value is None:
            raise UserError(f"cost.{name}=null: missing beside the other costs; set all, or none")
    rule = config.rule or rule_of(trained)

    @functools.cache
    def signal(n: int, m: int) -> np.ndarray:
        return np.array([[planner.signal_of_accuracy(rule, n, m, config.accuracy)]])

    costs = Costs(**{name: np.array([value]) for name, value in given.items()})
    own = Cell(trained.prompts_per_step, trained.rollouts_per_prompt, trained.kept_per_prompt)
    learned = (config.accuracy, costs, signal, np.ones(1), config.kappa, config.between)
    return Knowledge(config.experiment, origin, own, rule, *learned)


def from_run(config: PlanConfig) -> Knowledge:
    """Costs, signal and noise of the steps of a run that lie in the window."""
    runs, norms, trained = read(config, config.run, config.window)
    own = runs[0]
    counted = {(config.run, part.cell) for part in runs}  # no step counts twice
    for other in config.timed_with:
        parts = read(config, other, None)[0]
        runs += [part for part in parts if (other, part.cell) not in counted]
    rng = np.random.default_rng(config.seed)
    weights = [planner.resampled(len(run.rewards), config.resamples, rng) for run in runs]
    costs = planner.fit_costs(runs, weights)
    off = ", ".join(f"{phase} {share:.0%}" for phase, share in costs.residual.items())
    given = {name: value for name, value in asdict(config.cost).items() if value is not None}
    costs = replace(costs, **{k: np.full(len(weights[0]), value) for k, value in given.items()})
    rule = config.rule or rule_of(trained)
    signal = recorded_signal(config, own, rule, weights[0])
    shares = np.array([len(part) for part in planner.phases(len(norms))]) / len(norms)
    noise = planner.fit_noise(norms, own.cell.prompts, signal(*own.cell[1:]) @ shares, weights[0])
    origin = f"{len(norms)} steps; residuals: {off}"
    if noise[0] is not None and np.percentile(noise[0], 2.5) < HIDDEN * noise[0][0]:
        noise, origin = (None, None), f"{origin}; the gradient norms are too noisy to be used"
    kappa, between = (
        fitted if value is None else value
        for fitted, value in zip(noise, (config.kappa, config.between), strict=True)
    )
    accuracy = float(own.right.mean())
    known = (own.cell, rule, accuracy, costs, signal, shares, kappa, between)
    return Knowledge(trained.experiment, origin, *known)


def recorded_signal(
    config: PlanConfig, own: Steps, rule: str, weights: np.ndarray
) -> Callable[[int, int], np.ndarray]:
    """(n, m) -> (1 + B, K) J of recorded rewards; its draws do not depend on earlier calls."""
    rewards = own.right.astype(float) if config.signal == "correctness" else own.rewards
    counted = replace(own, rewards=rewards)

    @functools.cache
    def signal(n: int, m: int) -> np.ndarray:
        rng = np.random.default_rng([config.seed, n, m])
        return planner.signal(counted, rule, n, m, weights, rng)

    return signal


def read(
    config: PlanConfig, run: str, window: list[int] | None
) -> tuple[list[Steps], np.ndarray, TrainConfig]:
    """The recorded steps of a run, by their n and m with the newest first, the (steps, 3) squared
    gradient norms of these newest ones (NaN: not measured), and the run's config."""
    path = ledger.find(config.output_dir, run)
    trained = saved.load(path.parent / ".hydra" / "config.yaml")
    lines = read_metrics(path.with_name("metrics.jsonl"))
    ends = np.array([line["step"] for line in lines])
    first, last = window or (1, max(ends, default=1))
    cells: dict[Cell, list[Any]] = {}  # with plan=auto there are several
    for batch, selection in ledger.steps(path):
        at = np.searchsorted(ends, batch.step, side="right")  # the line that ends this step
        if at < len(lines) and first <= ends[at] <= last:
            prompts, n = batch.shape
            cell = Cell(prompts, n, len(selection.kept) // prompts)
            tokens = batch.lengths.ravel()[selection.kept].sum()
            cells[cell] = part = cells.pop(cell, [])  # now the newest
            part.append((lines[at], batch, tokens))
    steps = list(cells.values())[-1] if cells else []
    if len(steps) < planner.FEWEST_STEPS:
        raise UserError(
            f"run={run} window=[{first},{last}]: {len(steps)} steps; intervals need "
            f"{planner.FEWEST_STEPS} or more; train longer or widen the window"
        )
    if "correctness" not in steps[0][1].by_function:
        raise UserError(f"run={run}: has no reward `correctness`, which the planner needs")
    norms = np.array([[line.get(name, np.nan) for name in NORMS] for line, *_ in steps])
    found = [
        arrays(cell, *zip(*part, strict=True))
        for cell, part in reversed(cells.items())
        if len(part) >= planner.FEWEST_STEPS
    ]
    return found, norms, trained


def arrays(
    cell: Cell, lines: tuple[dict[str, Any]], batches: tuple[Batch], trained: tuple[int]
) -> Steps:
    """Metric lines, batches and trained tokens of steps as arrays."""
    lengths = np.array([batch.lengths.ravel() for batch in batches])
    seconds = {
        phase: np.array([sum(line[f"seconds/{part}"] for part in parts) for line in lines])
        for phase, parts in PHASES.items()
    }
    rewards = np.array([batch.rewards for batch in batches])
    right = np.array([batch.by_function["correctness"] for batch in batches]) > 0
    tokens = (lengths.sum(axis=1), np.array(trained), lengths.max(axis=1))
    return Steps(cell, rewards, right, seconds, *tokens)


def rule_of(trained: TrainConfig) -> str:
    """The rule of a run; that of the paper for a run of plain GRPO."""
    return "max_variance" if trained.rule.name == "all" else trained.rule.name
