"""plan=auto: n and m follow the planner's forecast from the run's own steps.

After planner.first steps, and every planner.every from there, costs and signal are fitted to the
newest steps, and the fastest n and m are taken where the interval of their predicted speed, over
that of today's, lies above 1. The step's checkpoint names them, and the training is built again
from it, as after a resume; the seconds of that are off the clock.
    uv run train.py algorithm=pods plan=auto
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pods import ranks
from pods.config.keys import TrainConfig, reward_weights

ALLOWED = {  # what the planner has a model of
    "algorithm": ("pods",),
    "rule": ("max_variance", "max_reward", "percentile", "random"),
    "resample": ("none",),
}


class AutoPlan:
    """sizes: n and m of the next steps; changed: just now, so that the training is built again."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.sizes = [config.rollouts_per_prompt, config.kept_per_prompt]
        self.changes, self.changed = 0, False

    def restore(self, meta: dict[str, Any]) -> None:
        self.changes = meta.get("plan_changes", 0)

    def meta(self) -> dict[str, Any]:
        """What a checkpoint needs to go on with; nothing without plan=auto."""
        if self.config.plan == "none":
            return {}
        return {"sizes": self.sizes, "plan_changes": self.changes}

    def metrics(self) -> dict[str, float]:
        if self.config.plan == "none":
            return {}
        n, m = self.sizes
        return {"plan/n": n, "plan/m": m, "plan/changes": self.changes}

    def due(self, step: int) -> bool:
        """Whether n and m are planned after this optimiser step."""
        first, every = self.config.planner.first, self.config.planner.every
        return self.config.plan == "auto" and step >= first and (step - first) % every == 0

    def __call__(self, step: int) -> None:
        """Plan from the metrics and the ledger on the disk."""
        before, found = self.sizes, propose(self.config, step)
        if found is None:
            return
        self.sizes, (low, high) = found
        self.changes, self.changed = self.changes + 1, True
        ranks.say(
            f"step {step}: plan {self.changes}: n {before[0]} -> {self.sizes[0]}, m {before[1]} -> "
            f"{self.sizes[1]}; predicted speed {low:.2f} to {high:.2f} times today's"
        )


def problems(config: TrainConfig) -> Iterator[str]:
    """Why plan=auto cannot serve this training, each with its remedy."""
    if config.plan == "none":
        return
    for key, names in ALLOWED.items():
        if (value := getattr(config, key).name) not in names:
            known = " or ".join(f"{key}={name}" for name in names)
            yield f"plan=auto {key}={value}: the planner cannot predict it; set {known}"
    if "correctness" not in reward_weights(config.rewards):
        yield "plan=auto: needs the reward `correctness`; give it a weight, or set plan=none"
    if (updates := config.updates_per_generation) > 1:
        yield (
            f"plan=auto updates_per_generation={updates}: the planner knows one update of a "
            "generation; set updates_per_generation=1"
        )
    if ranks.world_size() > 1:
        yield "plan=auto: builds the training of one process again; set plan=none"


def resume(config: TrainConfig, meta: dict[str, Any]) -> None:
    """Train on with the n and m that a checkpoint's meta.json names."""
    if config.plan == "auto":
        config.rollouts_per_prompt, config.kept_per_prompt = meta["sizes"]


def sizes(most: int, size: int) -> list[tuple[int, int]]:
    """n and m that may be taken: n a power of 2 or the most, m in whole micro-batches."""
    ns = {most, *(2**k for k in range(1, most.bit_length()))}
    ms = [size * 2**k for k in range(most.bit_length()) if size * 2**k <= most]
    return [(n, m) for n in sorted(ns) for m in ms if m <= n]


def propose(config: TrainConfig, step: int) -> tuple[list[int], list[float]] | None:
    """The n and m to go on with, and the interval of their predicted speed over today's; None where
    no others are faster for sure."""
    from pods import plan, planner, upgrade  # scipy, which a mistyped key need not wait for
    from pods.config.command import compose, typed

    window = [max(1, step - config.planner.every + 1), step]
    keys = [f"run={config.run}", f"output_dir={config.output_dir}", f"window={window}"]
    keys.append(f"timed_with=[{config.run}]")  # earlier n and m tell the costs apart
    composed = compose("plan", plan.PlanConfig, keys, plan.FOLDER)
    known = plan.from_run(typed(plan.PlanConfig, composed))
    saved = upgrade.load(Path(config.output_dir) / config.run / ".hydra" / "config.yaml")
    own = planner.predict(known, known.own, "fixed")
    found = [
        planner.predict(known, planner.Cell(known.own.prompts, n, m), "fixed")
        for n, m in sizes(saved.rollouts_per_prompt, config.micro_batch_size)
    ]
    best = max(found, key=lambda one: one.rate[0])
    if best.cell == known.own or not own.rate[0] > 0:
        return None
    low, high = planner.interval(best.rate / own.rate)
    return ([best.cell.n, best.cell.m], [low, high]) if low > 1 else None
