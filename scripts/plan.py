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
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure as Canvas

from pods.config.command import command
from pods.config.errors import UserError
from pods.figures import drawing, planner, tables
from pods.figures.plan import FOLDER, PlanConfig, check, from_numbers, from_run
from pods.figures.planner import Cell, Knowledge, Prediction

WIDE = (1, 2, 4, 8)  # prompts per step that are tried where their noise is known


@command("plan", PlanConfig, FOLDER)
def main(config: PlanConfig) -> None:
    check(config)
    known = from_run(config) if config.run else from_numbers(config)
    predict = functools.cache(lambda cell: planner.predict(known, cell, config.lr))
    try:
        found = [predict(cell) for cell in cells(config, known)]
    except ValueError as error:  # the rule needs more than rewards, or another m
        raise UserError(f"rule={known.rule}: {error}; set rule=max_variance") from None
    own, m = predict(known.own), known.own.m
    base = found[0] if config.cells else predict(Cell(known.own.prompts, m, m))
    if not min(own.rate[0], base.rate[0]) > 0:
        raise UserError(f"accuracy={known.accuracy:.3g}: prompts have equal rewards; no signal")
    best, grpo, pods = (fastest(found, kind) for kind in (None, False, True))
    against = {"relative": base, "to_own": own, "to_best_grpo": grpo}
    rows = {one: row(one, against) for one in {*found, own, base}}
    train, said = recommended(known, best.cell), verdict(known, pods, grpo)
    name = config.run or config.experiment
    picture = heat_map(found, best, grpo or base, f"{name}. {said}")
    drawing.save(picture, Path(config.out_dir) / "plan" / name)
    if config.json:
        plan = {"cells": [rows[one] for one in found], "best": rows[best] | {"command": train}}
        print(json.dumps(plan | {"verdict": said, "notes": notes(config, known)}, indent=1))
        return
    shown = found if config.cells else sorted({own, base, best, grpo, pods} - {None}, key=speed)
    lines = tables.aligned([as_text(rows[one]) for one in shown])
    print("\n".join([*notes(config, known), "", lines, "", said, f"best: {train}"]))


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


def notes(config: PlanConfig, known: Knowledge) -> list[str]:
    """What the comparison rests on, a line each."""
    fixed, generate, update = (
        estimate(getattr(known.costs, name)) for name in ("fixed", "generate", "update")
    )
    found = [f"seconds a step: {fixed} + {generate} n P + {update} m P ({known.origin})"]
    if min(np.percentile(each, 2.5) for each in (known.costs.generate, known.costs.update)) <= 0:
        found.append(
            "the steps are too alike to tell g or u from the fixed seconds: add a run of other n "
            "and m with timed_with=[<run>], or set cost.*"
        )
    if known.kappa is not None:
        between = "unknown, taken as 0" if known.between is None else estimate(known.between)
        return [*found, f"kappa {estimate(known.kappa)}, noise between prompts A {between}"]
    return [
        *found,
        "kappa is unknown (train with planner.gradient_noise_every=5, or set kappa=): small "
        "signals are assumed, SNR2 is in units of kappa, cells of other P are not compared",
        f"the best n and m depend on kappa: {by_kappa(config, known)}",
    ]


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


def recommended(known: Knowledge, best: Cell) -> str:
    """The command line that trains with the best cell."""
    chosen = f"algorithm=pods rule={known.rule} rollouts_per_prompt={best.n}"
    chosen = "algorithm=grpo" if best.n == best.m else chosen
    sizes = f"kept_per_prompt={best.m} prompts_per_step={best.prompts}"
    return f"uv run train.py experiment={known.experiment} {chosen} {sizes}"


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
        canvas.suptitle(title, fontsize=9, wrap=True)
    return canvas


if __name__ == "__main__":
    main()
