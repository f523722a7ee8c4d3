"""Which n, m and P to train with, from one short run or from numbers. docs/planner.md explains it.

    uv run scripts/plan.py run=<run>                           # cost and signal of a run's steps
    uv run scripts/plan.py run=<run> window=[200,400]          # of these steps alone
    uv run scripts/plan.py experiment=gsm8k_qwen accuracy=.8   # the published L40S, no run
    uv run scripts/plan.py cost.fixed=2 cost.generate=.01 cost.update=.05 accuracy=.6 json=true

planner.gradient_noise_every=5 in the run's training adds kappa and A, without which cells of other
P cannot be compared.
"""

import functools
import json
import textwrap
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure as Canvas
from omegaconf import MISSING, OmegaConf

from pods import ledger, planner, upgrade
from pods.cli import CONFIG_DIR, UserError, command, compose, typed
from pods.config import TrainConfig
from pods.figures import drawing, tables
from pods.planner import Cell, Costs, Knowledge, Prediction, Steps
from pods.rules import RULES
from pods.runs import read_metrics
from pods.schema import at_least, broken, one_of, positive

FOLDER = CONFIG_DIR / "plan"
WIDE = (1, 2, 4, 8)  # prompts per step that are tried where their noise is known
PHASES = {"generate": ("generate",), "score": ("score", "select"), "update": ("update",)}
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


@command("plan", PlanConfig, FOLDER)
def main(config: PlanConfig) -> None:
    check(config)
    known, notes, name, experiment = (from_run if config.run else from_numbers)(config)
    predict = functools.cache(lambda cell: planner.predict(known, cell, config.lr))
    found = [predict(cell) for cell in cells(config, known)]
    own, m = predict(known.own), known.own.m
    base = found[0] if config.cells else predict(Cell(known.own.prompts, m, m))
    if not min(own.rate[0], base.rate[0]) > 0:
        raise UserError(f"accuracy={known.accuracy:.3g}: prompts have equal rewards; no signal")
    best, grpo, pods = (fastest(found, kind) for kind in (None, False, True))
    against = {"relative": base, "to_own": own, "to_best_grpo": grpo}
    rows = {one: row(one, against) for one in {*found, own, base}}
    train = recommended(experiment, known.rule, best.cell)
    said = verdict(known, pods, grpo)
    if known.kappa is None:
        notes.append(f"the best n and m depend on kappa: {by_kappa(config, known)}")
    picture = heat_map(found, best, grpo or base, f"{name}. {said}")
    drawing.save(picture, Path(config.out_dir) / "plan" / name)
    if config.json:
        plan = {"cells": [rows[one] for one in found], "best": rows[best] | {"command": train}}
        print(json.dumps(plan | {"verdict": said, "notes": notes}, indent=1))
        return
    shown = found if config.cells else sorted({own, base, best, grpo, pods} - {None}, key=speed)
    lines = tables.aligned([as_text(rows[one]) for one in shown])
    print("\n".join([*notes, "", lines, "", said, f"best: {train}"]))


def check(config: PlanConfig) -> None:
    """Raise UserError with the first value that cannot be used."""
    for problem in broken(config):
        raise UserError(problem)
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


def from_numbers(config: PlanConfig) -> tuple[Knowledge, list[str], str, str]:
    """The experiment's sizes with the given costs, or those of the published L40S."""
    overrides = [f"experiment={config.experiment}"]
    trained = typed(TrainConfig, compose("train", TrainConfig, overrides))
    given, origin = asdict(config.cost), "as given"
    if not any(given.values()):
        given, origin = OmegaConf.load(FOLDER / "cost" / "l40s.yaml"), "published, one L40S"
    for name, value in given.items():
        if value is None:
            raise UserError(f"cost.{name}=null: missing beside the other costs; set all, or none")
    costs = Costs(**{name: np.array([value]) for name, value in given.items()})
    rule = config.rule or rule_of(trained)

    @functools.cache
    def signal(n: int, m: int) -> np.ndarray:
        return np.array([planner.signal_of_accuracy(rule, n, m, config.accuracy)])

    noise = (config.kappa, config.between)
    known = Knowledge(cell_of(trained), rule, config.accuracy, costs, signal, *noise)
    notes = [f"{cost_line(costs)} ({origin})", kappa_line(known)]
    return known, notes, config.experiment, config.experiment


def from_run(config: PlanConfig) -> tuple[Knowledge, list[str], str, str]:
    """Costs, signal and noise of the steps of a run that lie in the window."""
    runs, norms, configs = zip(
        *(read(config, run, config.window if run == config.run else None)
          for run in (config.run, *config.timed_with)), strict=True,
    )  # fmt: skip
    own, trained = runs[0], configs[0]
    rng = np.random.default_rng(config.seed)
    weights = [planner.resampled(len(run.rewards), config.resamples, rng) for run in runs]
    costs = planner.fit_costs(list(runs), weights)
    given = {name: value for name, value in asdict(config.cost).items() if value is not None}
    costs = replace(costs, **{k: np.full(len(weights[0]), value) for k, value in given.items()})
    counted = own.right.astype(float) if config.signal == "correctness" else own.rewards
    counted, rule = replace(own, rewards=counted), config.rule or rule_of(trained)

    @functools.cache
    def signal(n: int, m: int) -> np.ndarray:
        rng = np.random.default_rng([config.seed, n, m])
        return planner.signal(counted, rule, n, m, weights[0], rng)

    noise = planner.fit_noise(norms[0], own.cell.prompts, signal(*own.cell[1:]), weights[0])
    kappa, between = (
        fitted if given is None else given
        for fitted, given in zip(noise, (config.kappa, config.between), strict=True)
    )
    known = Knowledge(own.cell, rule, float(own.right.mean()), costs, signal, kappa, between)
    off = ", ".join(f"{phase} {share:.0%}" for phase, share in costs.residual.items())
    notes = [f"{cost_line(costs)}; residuals: {off}", kappa_line(known)]
    if min(np.percentile(costs.generate, 2.5), np.percentile(costs.update, 2.5)) <= 0:
        notes.append("the steps are too alike to tell g or u from the fixed seconds: add a run of "
                     "other n and m with timed_with=[<run>], or set cost.*")  # fmt: skip
    return known, notes, config.run, trained.experiment


def read(
    config: PlanConfig, run: str, window: list[int] | None
) -> tuple[Steps, np.ndarray, TrainConfig]:
    """The recorded steps of a run, their (steps, 3) squared gradient norms (NaN: not measured), and
    its config."""
    path = ledger.find(config.output_dir, run)
    trained = upgrade.load(path.parent / ".hydra" / "config.yaml")
    lines = {line["step"]: line for line in read_metrics(path.with_name("metrics.jsonl"))}
    first, last = window or (1, max(lines, default=1))
    steps = [
        (lines[batch.step + 1], batch, batch.lengths.ravel()[selection.kept].sum())
        for batch, selection in ledger.steps(path)
        if first <= batch.step + 1 <= last and batch.step + 1 in lines
    ]
    if len(steps) < planner.FEWEST_STEPS:
        raise UserError(
            f"run={run} window=[{first},{last}]: {len(steps)} steps; intervals need "
            f"{planner.FEWEST_STEPS} or more; train longer or widen the window"
        )
    lines, batches, kept = zip(*steps, strict=True)
    if "correctness" not in batches[0].by_function:
        raise UserError(f"run={run}: has no reward `correctness`, which the planner needs")
    lengths = np.array([batch.lengths.ravel() for batch in batches])
    seconds = {
        phase: np.array([sum(line[f"seconds/{part}"] for part in parts) for line in lines])
        for phase, parts in PHASES.items()
    }
    recorded = Steps(
        cell_of(trained),
        np.array([batch.rewards for batch in batches]),
        np.array([batch.by_function["correctness"] for batch in batches]) > 0,
        seconds, lengths.sum(axis=1), np.array(kept), lengths.max(axis=1),
    )  # fmt: skip
    norms = [[line.get(name, np.nan) for name in NORMS] for line in lines]
    return recorded, np.array(norms), trained


def cell_of(trained: TrainConfig) -> Cell:
    return Cell(trained.prompts_per_step, trained.rollouts_per_prompt, trained.kept_per_prompt)


def rule_of(trained: TrainConfig) -> str:
    """The rule of a run; that of the paper for a run of plain GRPO."""
    return "max_variance" if trained.rule.name == "all" else trained.rule.name


def cells(config: PlanConfig, known: Knowledge) -> list[Cell]:
    """The cells asked for, or n and m in powers of two up to 4 n of the run."""
    if config.cells:
        return [Cell(*cell) for cell in config.cells]
    own = known.own
    comparable = known.kappa is not None and known.between is not None
    powers = [2**k for k in range(1, 12) if 2**k <= 4 * own.n]
    return [
        Cell(prompts, n, m)
        for prompts in sorted({own.prompts, *(WIDE if comparable else ())})
        for n in sorted({*powers[1:], own.n, own.m})
        for m in sorted({*powers, own.m})
        if m <= n
    ]


def speed(one: Prediction) -> float:
    return float(one.rate[0])


def fastest(found: list[Prediction], pods: bool | None) -> Prediction | None:
    """The best of the cells with n > m (pods), of those with n = m (not pods), or of all."""
    some = [one for one in found if pods is None or pods == (one.cell.n > one.cell.m)]
    return max(some, key=speed, default=None)


def row(one: Prediction, against: dict[str, Prediction | None]) -> dict[str, Any]:
    """A cell as JSON: seconds, SNR2 and rate, with its speed against other cells' and intervals."""
    found = {
        **one.cell._asdict(),
        "seconds_per_step": float(one.seconds[0]),
        "snr2": float(one.snr2[0]),
        "rate": speed(one),
    }
    for name, other in against.items():
        ratio = None if other is None else one.rate / other.rate
        found[name] = None if ratio is None else float(ratio[0])
        found[f"{name}_ci95"] = None if ratio is None else planner.interval(ratio)
    return found


def as_text(row: dict[str, Any]) -> dict[str, str]:
    """A row of the table."""
    numbers = {"s a step": "seconds_per_step", "SNR2": "snr2"}
    ratios = {"speed / the run's cell": "to_own", "speed / best GRPO": "to_best_grpo"}
    return {
        **{"P": str(row["prompts"]), "n": str(row["n"]), "m": str(row["m"])},
        **{name: f"{row[key]:.3g}" for name, key in numbers.items()},
        **{name: number(row[key], row[f"{key}_ci95"]) for name, key in ratios.items()},
    }


def number(value: float | None, ends: list[float] | None) -> str:
    """A value with its interval, where it has one."""
    if value is None or ends is None:
        return "-" if value is None else f"{value:.3g}"
    return f"{value:.3g} [{ends[0]:.3g}, {ends[1]:.3g}]"


def estimate(values: np.ndarray | float) -> str:
    values = np.atleast_1d(values)
    return number(values[0], planner.interval(values))


def cost_line(costs: Costs) -> str:
    parts = (f"{estimate(costs.generate)} n P", f"{estimate(costs.update)} m P")
    return f"seconds a step: {' + '.join((estimate(costs.fixed), *parts))}"


def kappa_line(known: Knowledge) -> str:
    if known.kappa is None:
        return (
            "kappa is unknown (train with planner.gradient_noise_every=5, or set kappa=): small "
            "signals are assumed, SNR2 is in units of kappa, cells of other P are not compared"
        )
    between = "unknown, taken as 0" if known.between is None else estimate(known.between)
    return f"kappa {estimate(known.kappa)}, noise between prompts A {between}"


def by_kappa(config: PlanConfig, known: Knowledge) -> str:
    """The best cell for weak, middling and strong signals of one rollout."""
    found = []
    for kappa in (0.01, 0.1, 1.0):
        guess = replace(known, kappa=kappa)
        predicted = (planner.predict(guess, cell, config.lr) for cell in cells(config, known))
        best = max(predicted, key=speed).cell
        found.append(f"n = {best.n}, m = {best.m} for kappa = {kappa:g}")
    return "; ".join(found)


def verdict(known: Knowledge, pods: Prediction | None, grpo: Prediction | None) -> str:
    """Whether PODS should pay, and the rule of thumb."""
    p, ratio = known.accuracy, known.costs.update[0] / max(known.costs.generate[0], planner.TINY)
    limit = planner.break_even(p)
    side = "above" if ratio > limit else "below"
    thumb = f"p = {p:.2g}, u/g = {ratio:.2g}: {side} 1 / |1 - 2p| = {limit:.2g}"
    if pods is None or grpo is None:
        return thumb
    times = pods.rate / grpo.rate
    said = "should pay" if times[0] > 1 else "should not pay"
    return f"PODS {said}: {estimate(times)} times the speed of GRPO at its best size ({thumb})"


def recommended(experiment: str, rule: str, best: Cell) -> str:
    """The command line that trains with the best cell."""
    chosen = f"algorithm=pods rule={rule} rollouts_per_prompt={best.n}"
    chosen = "algorithm=grpo" if best.n == best.m else chosen
    sizes = f"kept_per_prompt={best.m} prompts_per_step={best.prompts}"
    return f"uv run train.py experiment={experiment} {chosen} {sizes}"


def heat_map(found: list[Prediction], best: Prediction, base: Prediction, title: str) -> Canvas:
    """The rate over (n, m) at the best P, relative to that of `base`; the best in bold."""
    same = [one for one in found if one.cell.prompts == best.cell.prompts]
    ns, ms = (sorted({one.cell[i] for one in same}) for i in (1, 2))
    grid = np.full((len(ms), len(ns)), np.nan)
    for one in same:
        grid[ms.index(one.cell.m), ns.index(one.cell.n)] = speed(one) / speed(base)
    with matplotlib.rc_context(drawing.STYLE | {"axes.grid": False}):
        canvas = Canvas(figsize=(2.5 + 0.6 * len(ns), 2 + 0.4 * len(ms)), layout="constrained")
        axes = canvas.subplots()
        image = axes.imshow(grid, origin="lower", aspect="auto", cmap="viridis", vmin=0)
        for i, j in np.argwhere(np.isfinite(grid)):
            look = {"weight": "bold"} if grid[i, j] == np.nanmax(grid) else {}
            look["color"] = "white" if grid[i, j] < 0.6 * np.nanmax(grid) else "black"
            axes.text(j, i, f"{grid[i, j]:.2f}", ha="center", va="center", **look)
        axes.set_xticks(range(len(ns)), ns)
        axes.set_yticks(range(len(ms)), ms)
        axes.set(xlabel="n, rollouts per prompt", ylabel="m, kept per prompt")
        axes.set_title(f"P = {best.cell.prompts}")
        against = f"GRPO with P = {base.cell.prompts}, n = m = {base.cell.n}"
        canvas.colorbar(image, label=f"speed / {against}")
        canvas.suptitle("\n".join(textwrap.wrap(title, 70)), fontsize=9)
    return canvas


if __name__ == "__main__":
    main()
